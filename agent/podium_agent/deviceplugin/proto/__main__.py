"""Generates the code beside the .proto files again: `python -m podium_agent.deviceplugin.proto`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = "podium_agent.deviceplugin.proto"


def main() -> int:
    from grpc_tools import protoc  # only developers have it

    for proto in sorted(HERE.glob("*.proto")):
        status = protoc.main(
            [
                "protoc",
                f"-I{HERE}",
                f"--python_out={HERE}",
                f"--pyi_out={HERE}",
                f"--grpc_python_out={HERE}",
                str(proto),
            ]
        )
        if status:
            return int(status)
    for path in HERE.glob("*_pb2_grpc.py"):
        # protoc writes a top-level import; the code lives in a package
        text = re.sub(r"^import (\w+_pb2) as", rf"from {PACKAGE} import \1 as", path.read_text(), flags=re.MULTILINE)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
