"""Python API: start a search from a script or notebook, here or on a cluster. Users import it as `podium`."""

from podium_api.client import Client
from podium_api.errors import SearchError, SearchWarning
from podium_api.results import Point, Trial
from podium_api.search import Search
from podium_api.space import Dimension, choice, loguniform, randint, uniform
from podium_api.tune import tune
from podium_core.schema.job import GPU_SECONDS

__all__ = [
    "GPU_SECONDS",
    "Client",
    "Dimension",
    "Point",
    "Search",
    "SearchError",
    "SearchWarning",
    "Trial",
    "choice",
    "loguniform",
    "randint",
    "tune",
    "uniform",
]
