"""Logs of trials: from the API server, across the attempts of a trial, or from the files of a local run."""
