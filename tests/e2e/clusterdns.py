"""The cluster's DNS, for Services and their Endpoints: the nodes come without one.

It answers as Kubernetes' specification says, for IPv4 addresses: a headless Service has the addresses of its Endpoints,
and each Pod with a host name has a name of its own; another Service has its cluster IP. There is no other name, and
nothing is cached.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import SERVICES, Resource

Json = dict[str, Any]

ENDPOINTS: Final = Resource("", "v1", "endpoints", "Endpoints")
DOMAIN: Final = "cluster.local"
_ADDRESS: Final = "10.96.0.10"
"""The one that the kubelets name to containers."""
_MACHINE: Final = "10.88.0.254"
"""This machine, as the cluster sees it."""
_SERVICE: Final = "kube-dns"
_NAMESPACE: Final = "kube-system"
_ZONE: Final = dns.name.from_text(f"svc.{DOMAIN}")
_TTL: Final = 5


class Objects(Protocol):
    """The objects of the cluster by name."""

    def services(self, namespace: str) -> Mapping[str, Json]: ...
    def endpoints(self, namespace: str) -> Mapping[str, Json]: ...


def addresses(name: dns.name.Name, objects: Objects) -> list[str] | None:
    """The addresses of a name; None if there is no such name."""
    if not name.is_subdomain(_ZONE):
        return None
    labels = [label.decode().lower() for label in name.relativize(_ZONE).labels]
    if len(labels) not in (2, 3):
        return None
    *host, service, namespace = labels
    found = objects.services(namespace).get(service)
    if found is None:
        return None
    if not host and (ip := found["spec"].get("clusterIP", "None")) != "None":
        return [ip]
    # The control plane sorts those that are not ready into another list, unless the Service publishes them.
    subsets = objects.endpoints(namespace).get(service, {}).get("subsets") or ()
    ready = [one for subset in subsets for one in subset.get("addresses") or ()]
    if not host:
        return [one["ip"] for one in ready]
    return [one["ip"] for one in ready if [one.get("hostname")] == host] or None


def answer(query: dns.message.Message, objects: Objects) -> dns.message.Message:
    """The response to a query."""
    response = dns.message.make_response(query, recursion_available=True)
    response.flags |= dns.flags.AA
    (question,) = query.question
    found = addresses(question.name, objects)
    if found is None:
        response.set_rcode(dns.rcode.NXDOMAIN)
    elif question.rdtype == dns.rdatatype.A:
        response.answer.append(dns.rrset.from_text_list(question.name, _TTL, dns.rdataclass.IN, question.rdtype, found))
    return response


class _Server(asyncio.DatagramProtocol):
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, sender: Any) -> None:
        self._transport.sendto(answer(dns.message.from_wire(data), self._objects).to_wire(), sender)


async def serve(client: KubeClient, objects: Objects) -> asyncio.BaseTransport:
    """Serve names to the containers of the cluster, on this machine, until the transport is closed."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Server(objects), (_MACHINE, 0))
    _, port = transport.get_extra_info("sockname")
    ports = [{"name": "dns", "protocol": "UDP", "port": 53}]
    service = {"metadata": {"name": _SERVICE}, "spec": {"clusterIP": _ADDRESS, "ports": ports}}
    subset = {"addresses": [{"ip": _MACHINE}], "ports": [{**ports[0], "port": port}]}
    endpoints = {"metadata": {"name": _SERVICE}, "subsets": [subset]}
    await client.create(SERVICES, orjson.dumps(service), _NAMESPACE)
    await client.create(ENDPOINTS, orjson.dumps(endpoints), _NAMESPACE)
    return transport
