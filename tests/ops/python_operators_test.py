"""Tests torch.ops.tessera.* from Python. ctest runs this with the Python of LibTorch's environment:

  python tests/ops/python_operators_test.py build/lib/libtessera_ops.so

Exits with code 77, which ctest reports as skipped, if torch cannot be imported.
"""
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} cannot import torch ({error})")
    sys.exit(77)

LIBRARY = sys.argv.pop(1)
torch.ops.load_library(LIBRARY)
torch.ops.load_library(LIBRARY)  # loading it twice is harmless
tessera = torch.ops.tessera


def tokens(dtype=torch.float32, grad=True, batch=3, words=5, patches=7, width=16):
    torch.manual_seed(0)
    text = torch.randn(batch, words, width, dtype=dtype, requires_grad=grad)
    image = torch.randn(batch, patches, width, dtype=dtype, requires_grad=grad)
    return text, image, torch.rand(batch, words) < 0.7


def composed(text, image, mask, threshold):
    similarity = text @ image.mT
    low, high = similarity.amin(-1, keepdim=True), similarity.amax(-1, keepdim=True)
    z = (similarity - low) / (high - low)
    kept = torch.where(z < threshold, 0.0, z)
    return (kept / kept.sum(-1, keepdim=True)).masked_fill(~mask.unsqueeze(-1), 0.0) @ image


class SparsifyGroup(unittest.TestCase):
    def test_equals_eager_pytorch_with_gradients(self):
        for settings, threshold in [({}, 1 / 7), ({"threshold": 0.4}, 0.4), ({"sparsify": False}, 0.0)]:
            text, image, mask = tokens()
            wide = [x.detach().double().requires_grad_() for x in (text, image)]
            ours, theirs = tessera.sparsify_group(text, image, mask, **settings), composed(*wide, mask, threshold)
            torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
            weight = torch.randn_like(ours)
            for a, b in zip(torch.autograd.grad(ours, (text, image), weight), torch.autograd.grad(theirs, wide, weight.double())):
                torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)

    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            text, image, mask = tokens(dtype)
            torch.library.opcheck(tessera.sparsify_group.default, (text, image, mask))
        text, image, mask = tokens()
        torch.library.opcheck(tessera._sparsify_group.default, (text, image, mask, False, None, 1.0))


class FlopsRegularizer(unittest.TestCase):
    def test_equals_eager_pytorch_with_gradients(self):
        torch.manual_seed(0)
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            encoding = torch.rand(9, 33, requires_grad=True, dtype=dtype)
            wide = encoding.detach().double().requires_grad_()
            ours, theirs = tessera.flops_regularizer(encoding), wide.mean(0).square().sum()
            torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
            (a,), (b,) = torch.autograd.grad(ours, encoding), torch.autograd.grad(theirs, wide)
            torch.testing.assert_close(a, b.to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)

    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64):
            torch.library.opcheck(tessera.flops_regularizer.default, (torch.rand(4, 9, dtype=dtype, requires_grad=True),))
        for dense in (False, True):
            torch.library.opcheck(tessera.flops_regularizer.default, (torch.rand(4, 9, requires_grad=True),), {"dense_gradient": dense})
            torch.library.opcheck(tessera._flops_regularizer.default, (torch.rand(4, 9, requires_grad=True), dense))

    def test_compiled_steps_have_the_same_gradients(self):
        weights = torch.rand(4, 9, requires_grad=True)

        def step(x):
            encoding = torch.relu(x)
            return tessera.flops_regularizer(encoding) + encoding.square().sum() + tessera.flops_regularizer(2 * x, dense_gradient=True)

        expected, = torch.autograd.grad(step(weights), weights)
        for dynamic in (False, True):
            compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)
            torch.testing.assert_close(torch.autograd.grad(compiled(weights), weights)[0], expected)


class RoiAlign(unittest.TestCase):
    def inputs(self, dtype):
        torch.manual_seed(0)
        boxes = torch.tensor([[0.5, 0.25, 3.0, 2.5], [-1.0, 1.0, 9.0, 9.0], [2.0, 2.0, 2.0, 2.0]])
        return torch.randn(2, 4, 5, 3, dtype=dtype, requires_grad=True), boxes, torch.tensor([0, 1, 1])

    def test_equals_torchvision_with_gradients(self):
        try:
            from torchvision.ops import roi_align
        except ImportError as error:
            self.skipTest(str(error))
        for ratio, aligned in [(-1, True), (-1, False), (2, True)]:
            features, boxes, image = self.inputs(torch.float32)
            ours = tessera.roi_align(features, boxes, image, [2, 3], ratio, aligned)
            rois = torch.cat([image.unsqueeze(1).float(), boxes], 1)
            theirs = roi_align(features.permute(0, 3, 1, 2), rois, (2, 3), 1.0, ratio, aligned).permute(0, 2, 3, 1)
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
            weight = torch.randn_like(ours)
            a, b = (torch.autograd.grad(x, features, weight)[0] for x in (ours, theirs))
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)

    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            torch.library.opcheck(tessera.roi_align.default, (*self.inputs(dtype), [2, 3]))
            torch.library.opcheck(tessera._roi_align.default, (*self.inputs(dtype), [1, 1]))


class MaxSimilarity(unittest.TestCase):
    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64):
            text, image, mask = tokens(dtype)
            keep = torch.ones(3, 7, dtype=torch.bool)
            torch.library.opcheck(tessera.max_similarity.default, (image, text, keep, mask))


class TokenMaxProjection(unittest.TestCase):
    def inputs(self, dtype=torch.float32):
        torch.manual_seed(0)
        values = torch.randn(3, 5, 8), torch.randn(40, 8), torch.randn(40)
        mask = torch.rand(3, 5) < 0.7
        mask[:, 0] = True
        return mask, [x.to(dtype).requires_grad_() for x in values]

    def test_equals_eager_pytorch_with_gradients(self):
        mask, (tokens, table, bias) = self.inputs()
        encoding, argmax = tessera.token_max_projection(tokens, mask, table, bias)
        activations = torch.nn.functional.linear(tokens, table, bias).masked_fill(~mask.unsqueeze(-1), float("-inf"))
        value, place = activations.max(1)
        theirs = torch.log1p(torch.relu(value))
        torch.testing.assert_close(encoding, theirs)
        self.assertTrue(torch.equal(argmax, place))
        weight = torch.randn_like(theirs)
        for a, b in zip(torch.autograd.grad(encoding, (tokens, table, bias), weight), torch.autograd.grad(theirs, (tokens, table, bias), weight)):
            torch.testing.assert_close(a, b)

    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            mask, (tokens, table, bias) = self.inputs(dtype)
            torch.library.opcheck(tessera.token_max_projection.default, (tokens, mask, table, bias))
            torch.library.opcheck(tessera.token_max_projection.default, (tokens, None, table, bias))


class LinearCrossEntropy(unittest.TestCase):
    def inputs(self, dtype=torch.float32):
        torch.manual_seed(0)
        targets = torch.randint(40, (12,))
        targets[::5] = -100
        return targets, [x.to(dtype).requires_grad_() for x in (torch.randn(12, 8), torch.randn(40, 8), torch.randn(40))]

    def test_equals_eager_pytorch_with_gradients(self):
        targets, inputs = self.inputs()
        for count in (2, 3):  # 2 inputs without bias, 3 with bias
            hidden, weight, *bias = inputs[:count]
            for reduction in ("mean", "sum"):
                ours = tessera.linear_cross_entropy(hidden, weight, targets, *bias, reduction=reduction)
                theirs = torch.nn.functional.cross_entropy(torch.nn.functional.linear(hidden, weight, *bias), targets, reduction=reduction)
                torch.testing.assert_close(ours, theirs)
                for a, b in zip(torch.autograd.grad(ours, inputs[:count]), torch.autograd.grad(theirs, inputs[:count])):
                    torch.testing.assert_close(a, b)

    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            targets, (hidden, weight, bias) = self.inputs(dtype)
            torch.library.opcheck(tessera.linear_cross_entropy.default, (hidden, weight, targets, bias))
            torch.library.opcheck(tessera.linear_cross_entropy.default, (hidden, weight.detach(), targets), {"reduction": "sum"})

    def test_rejects_another_reduction(self):
        targets, (hidden, weight, _) = self.inputs()
        with self.assertRaisesRegex(RuntimeError, "linear_cross_entropy: reduction must be mean or sum, got none"):
            tessera.linear_cross_entropy(hidden, weight, targets, reduction="none")


class LinearSoftCrossEntropy(unittest.TestCase):
    def inputs(self, dtype=torch.float32):
        torch.manual_seed(0)
        ids, weights = torch.randint(40, (12, 5)), torch.rand(12, 5)
        weights[::5] = 0
        weights[:, 1] = 0
        ids[:, 1] = -7
        return ids, weights, [x.to(dtype).requires_grad_() for x in (torch.randn(12, 8), torch.randn(40, 8), torch.randn(40))]

    def test_equals_eager_pytorch_with_gradients(self):
        ids, weights, inputs = self.inputs()
        target = torch.zeros(12, 40).scatter_add_(1, ids.clamp_min(0), weights)
        for count in (2, 3):  # 2 inputs without bias, 3 with bias
            hidden, weight, *bias = inputs[:count]
            for reduction, divisor in (("mean", 12), ("sum", 1)):
                ours = tessera.linear_soft_cross_entropy(hidden, weight, ids, weights, *bias, reduction=reduction, tile=100)
                logits = torch.nn.functional.linear(hidden, weight, *bias)
                theirs = -(target * logits.log_softmax(1)).sum() / divisor
                torch.testing.assert_close(ours, theirs)
                for a, b in zip(torch.autograd.grad(ours, inputs[:count]), torch.autograd.grad(theirs, inputs[:count])):
                    torch.testing.assert_close(a, b)

    def test_opcheck(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            ids, weights, (hidden, weight, bias) = self.inputs(dtype)
            torch.library.opcheck(tessera.linear_soft_cross_entropy.default, (hidden, weight, ids, weights, bias))
            torch.library.opcheck(tessera.linear_soft_cross_entropy.default, (hidden, weight.detach(), ids, weights),
                                  {"reduction": "sum", "tile": 80})


if __name__ == "__main__":
    unittest.main()
