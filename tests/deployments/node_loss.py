"""Run by test_node_loss: a cluster of three nodes loses one that holds a replica of everything, under eight streams."""

import asyncio
import hashlib
import sys

import httpx
import ray
from ray import serve
from ray.cluster_utils import Cluster

from deployments.app import bind
from tests.deployments.conftest import APP, settings

PORT = int(sys.argv[1])
URL = f"http://127.0.0.1:{PORT}"
BODIES = [
    {"input": f"Stream number {i}.", "response_format": "pcm", "seed": i, "max_frames": 240, "stream": True,
     "text_temperature": 0}
    for i in range(8)
]  # fmt: skip


async def read(client, request, started):
    digest, size = hashlib.sha256(), 0
    async with client.stream("POST", "/v1/audio/speech", json=request) as response:
        assert response.status_code == 200, await response.aread()
        async for part in response.aiter_raw():
            digest.update(part)
            size += len(part)
            started.set()
    return digest.hexdigest(), size


async def all_streams(disturb=None):
    async with httpx.AsyncClient(base_url=URL, timeout=120) as client:
        started = [asyncio.Event() for _ in BODIES]
        tasks = [asyncio.create_task(read(client, *each)) for each in zip(BODIES, started, strict=True)]
        await asyncio.gather(*(event.wait() for event in started))
        if disturb:
            disturb()
            assert not any(task.done() for task in tasks), "the node went too late"
        return await asyncio.gather(*tasks)


def main():
    memory = {"object_store_memory": 100 * 2**20}
    door = {"num_cpus": 1, "resources": {"door": 1}, "include_dashboard": False, **memory}
    worker = {"num_cpus": 1, "resources": {"compute": 3}, **memory}
    cluster = Cluster(initialize_head=True, head_node_args=door)
    nodes = [cluster.add_node(**worker) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
    compute = {"cpus": 0, "resources": {"compute": 1}}
    app = bind(
        settings(backbone=compute, depth=compute, codec=compute, ingress={"cpus": 0, "resources": {"door": 0.1}})
    )
    serve.run(app, name=APP, route_prefix="/")
    undisturbed = asyncio.run(all_streams())

    def lose_a_node():
        cluster.remove_node(nodes[0], allow_graceful=False)
        cluster.add_node(**worker)

    disturbed = asyncio.run(all_streams(lose_a_node))
    print("same" if disturbed == undisturbed else f"differ: {undisturbed} {disturbed}")
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
