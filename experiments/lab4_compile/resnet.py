"""ResNet-18 in plain torch modules: the convolutional model of the compiler study.

Source: He et al. 2015, arXiv 1512.03385, table 1, with projection shortcuts (option B) and the
strides of the usual implementations.
Shapes: B images, C channels, H and W pixels.
Not handled: pretrained weights; the study times it, and time does not depend on their values.
"""

import torch
from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet18(nn.Module):
    """A stem, four stages of two blocks, a mean over the pixels, a Linear head."""

    def __init__(self, *, num_classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        before = (WIDTHS[0], *WIDTHS[:-1])
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    Block(narrow, wide, stride=1 if stage == 0 else 2), Block(wide, wide, stride=1)
                )
                for stage, (narrow, wide) in enumerate(zip(before, WIDTHS))
            )
        )
        self.head = nn.Linear(WIDTHS[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:  # (B, 3, H, W) -> (B, num_classes)
        return self.head(self.stages(self.stem(images)).mean((2, 3)))
