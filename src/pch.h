#pragma once
// The precompiled header of every target that uses LibTorch. It includes what most files use, but not torch/torch.h, which takes twice as
// long to compile, nor the modules of torch/nn, which cost every file a second and which few files use.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/types.h>
