from podium.trial import Checkpoint as Checkpoint
from podium.trial import load as load
from podium.trial import mark as mark
from podium.trial import params as params
from podium.trial import report as report
from podium.trial import save as save
from podium.trial import should_save as should_save
from podium.trial import stopping as stopping
from podium_api import GPU_SECONDS as GPU_SECONDS
from podium_api import Client as Client
from podium_api import Search as Search
from podium_api import SearchError as SearchError
from podium_api import SearchWarning as SearchWarning
from podium_api import Trial as Trial
from podium_api import choice as choice
from podium_api import loguniform as loguniform
from podium_api import randint as randint
from podium_api import tune as tune
from podium_api import uniform as uniform

__version__: str
