"""`podium-dashboard`: the dashboard in a cluster, for callers with bearer tokens. The ingress adds TLS."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from podium_cluster.client import connect, connect_for_others
from podium_cluster.component import health
from podium_cluster.component.startup import read_settings
from podium_dashboard.callers.access import CallerAccess
from podium_dashboard.callers.renderings import Renderings
from podium_dashboard.callers.reviews import Reviews
from podium_dashboard.hub import Hub
from podium_dashboard.serve import followed, http_server, listen
from podium_dashboard.server.app import Limits, create_app
from podium_dashboard.server.sign_in import SignIn
from podium_dashboard.settings import DashboardSettings
from podium_dashboard.sources.cluster import ClusterSource

STREAMS_EACH = 40  # of one user
log = logging.getLogger(__name__)


async def serve(settings: DashboardSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    async with connect(settings) as api, connect_for_others(settings) as client_of:
        source, hub = ClusterSource(api, "", None), Hub()
        reviews, renderings = Reviews(api), Renderings(source, hub)
        sign_in = SignIn(reviews.identify, plain_http=settings.plain_http)
        access = CallerAccess(reviews, renderings, client_of, sign_in)
        app = create_app(hub, access, Limits(hosts=None, streams_each=STREAMS_EACH), sign_in.add_to)
        server = http_server(app)

        def stop() -> None:
            server.should_exit = True

        def alive() -> str | None:
            return "the watches have ended" if following.done() else None

        def ready() -> str | None:
            state = source.state()
            return None if state.ready else " ".join(state.problems) or "the searches have not been listed yet"

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)  # uvicorn raises its signals again
        with listen(settings.pages_port, settings.pages_host) as opened:
            async with (
                followed(source, hub, server) as following,
                health.serve(
                    settings.http_host, settings.http_port, alive=alive, ready=ready, registry=CollectorRegistry()
                ) as port,
            ):
                log.info("pages on port %d, health on port %d", opened.getsockname()[1], port)
                await server.serve([opened])
        if not following.cancelled():
            raise RuntimeError("the watches ended by themselves") from following.exception()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the dashboard."""
    settings = read_settings(
        DashboardSettings, "podium-dashboard", "Serves the dashboard to callers with tokens.", arguments
    )
    try:
        asyncio.run(serve(settings))
    except Exception as error:
        log.exception("the dashboard ended")
        sys.exit(f"podium-dashboard: {error}")


if __name__ == "__main__":
    main()
