"""Programs of Pods that report their progress by the standard library alone."""

from typing import Final

SENDS: Final = """
import json, os, ssl, sys, time, urllib.error, urllib.request

def send(status, url=os.environ["KUBEFLOW_TRAINER_SERVER_URL"], token=None):
    token = token or open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read().strip()
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    data = json.dumps({"trainerStatus": status}).encode()
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    try:
        return urllib.request.urlopen(request, timeout=30, context=context).status
    except urllib.error.HTTPError as error:
        return error.code
"""
"""The beginning of a program: ``send`` sends a report as KEP-2779 says, and returns the status code of the answer."""
