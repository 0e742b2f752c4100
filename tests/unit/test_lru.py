"""The bounded mapping."""

from frameworkcontroller.lru import LRUCache


def test_the_least_recently_used_item_is_evicted() -> None:
    cache: LRUCache[str, int] = LRUCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert cache.items() == [("a", 1), ("c", 3)]
    assert cache.pop("a") == 1
    assert cache.pop("a") is None
    assert len(cache) == 1
