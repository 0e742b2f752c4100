"""A controller that breaks a guarantee is caught, where a sound one comes to the end."""

import pytest

from tests.property.mutants import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_a_controller_that_breaks_a_guarantee_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    mutant.tale()
    with mutant.broken(), pytest.raises(AssertionError) as caught:
        mutant.tale()
    said = str(caught.value).partition("\n")[0]
    assert any(words in said for words in mutant.found.split("|")), said
