"""One file a command: `add` describes it to argparse, a private function carries it out."""
