#include "src/evaluation/tasks/examples.h"

#include <ATen/ATen.h>

namespace tessera {

Image to_image(const at::Tensor& pixels) {
  const at::Tensor rows = pixels.permute({1, 2, 0}).contiguous();
  const auto* data = rows.const_data_ptr<std::uint8_t>();
  return {rows.size(0), rows.size(1), {data, data + rows.numel()}};
}

}  // namespace tessera
