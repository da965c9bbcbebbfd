#!/usr/bin/env python3
"""Compares values, gradients and time of tessera.roi_align with torchvision.ops.roi_align.

    PYTHONPATH=python python3 scripts/check/roi_align.py [--device cuda] [--repetitions 20]

Needs torchvision for the PyTorch that Tessera was built for. Exit code 1 if a difference exceeds 1e-5.
"""
import argparse
import itertools
import sys
import time

import torch
import torchvision

import tessera

TOLERANCE = 1e-5


def random_boxes(count, height, width, device):
    """Returns boxes in cells: inside the map, across its borders, outside, with zero size, and with swapped corners."""
    size = torch.tensor([width, height], dtype=torch.float32)
    corner = torch.rand(count, 2) * (size + 4) - 3
    extent = torch.rand(count, 2) * size * 1.3
    extent[1::7] = 0
    extent[2::7] *= -1
    corner[3::7] += 3 * size
    return torch.cat([corner, corner + extent], 1).to(device)


def both(features, boxes, image, output_size, sampling_ratio, aligned):
    """Returns the values and gradients of our function and of torchvision's, with channels last."""
    def ours(x):
        return tessera.roi_align(x, boxes, image, output_size, sampling_ratio=sampling_ratio, aligned=aligned)

    def theirs(x):
        rois = torch.cat([image.unsqueeze(1).to(boxes.dtype), boxes], 1)
        out = torchvision.ops.roi_align(x.permute(0, 3, 1, 2), rois, output_size, 1.0, sampling_ratio, aligned)
        return out.permute(0, 2, 3, 1)

    results = []
    for function in (ours, theirs):
        x = features.clone().requires_grad_()
        out = function(x)
        weights = torch.arange(1, out.numel() + 1, dtype=torch.float32, device=out.device).cos().view(out.shape)
        results.append((out.detach(), torch.autograd.grad((out * weights).sum(), x)[0]))
    return results


def seconds(function, repetitions, device):
    function()
    times = []
    for _ in range(repetitions):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    worst, cases = 0.0, 0
    sizes = [(1, 1, 1, 1, 9), (2, 5, 7, 4, 40), (3, 16, 16, 33, 60), (2, 24, 13, 8, 200)]
    for sizes_of, output, ratio, aligned in itertools.product(sizes, [(1, 1), (2, 3), (7, 7)], [-1, 0, 1, 2, 4], [True, False]):
        images, height, width, channels, count = sizes_of
        features = torch.randn(images, height, width, channels, device=arguments.device)
        boxes = random_boxes(count, height, width, arguments.device)
        image = torch.randint(images, (count,), device=arguments.device)
        for ours, theirs in zip(*both(features, boxes, image, output, ratio, aligned)):
            worst = max(worst, float(((ours - theirs).abs() / (1 + theirs.abs())).max()))
        cases += 1
    print(f"{cases} cases, values and gradients: greatest difference over 1 + |value|: {worst:.1e} (allowed {TOLERANCE:.0e})")

    images, height, width, channels, count = 32, 16, 16, 768, 32 * 8
    features = torch.randn(images, height, width, channels, device=arguments.device, requires_grad=True)
    inside = torch.rand(count, 2, 2).sort(1).values * 16
    boxes = inside.flatten(1).to(arguments.device)
    image = torch.arange(count, device=arguments.device) % images
    rois = torch.cat([image.unsqueeze(1).to(boxes.dtype), boxes], 1)
    channels_first = features.detach().permute(0, 3, 1, 2).contiguous().requires_grad_()
    shape = f"{count} boxes of {images} images of {height} x {width} x {channels}, 1 x 1"
    for name, function in [("tessera", lambda: tessera.roi_align(features, boxes, image).sum().backward()),
                           ("torchvision", lambda: torchvision.ops.roi_align(channels_first, rois, 1, 1.0, -1, True).sum().backward())]:
        print(f"{name}: {1e3 * seconds(function, arguments.repetitions, arguments.device):.2f} ms forward and backward, {shape}")
    sys.exit(0 if worst <= TOLERANCE else 1)


if __name__ == "__main__":
    main()
