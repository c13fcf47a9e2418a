"""ResNet-18 (He et al., CVPR 2016) as six PyTorch modules, cut where SGPRS cuts it. Weights are random.

Called by `runtime.cuda`, which hands in the imported torch module.
"""

from __future__ import annotations

from typing import Any

STAGES = ("stem", "layer1", "layer2", "layer3", "layer4", "head")


def resnet18_stages(torch: Any) -> list[Any]:
    """One module a stage; input 1x3x224x224, output 1x1000."""
    nn = torch.nn

    def unit(inputs: int, outputs: int, kernel: int, stride: int) -> Any:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = unit(inputs, outputs, 3, stride)
            self.second = unit(outputs, outputs, 3, 1)
            same = stride == 1 and inputs == outputs
            self.shortcut = nn.Identity() if same else unit(inputs, outputs, 1, stride)

        def forward(self, x: Any) -> Any:
            inner = self.second(torch.relu(self.first(x)))
            return torch.relu(inner + self.shortcut(x))

    stem = nn.Sequential(unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    layers = [
        nn.Sequential(Block(inputs, outputs, 1 if outputs == 64 else 2), Block(outputs, outputs, 1))
        for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512))
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return [stem, *layers, head]
