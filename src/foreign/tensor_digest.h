#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "src/base/digest.h"

namespace tessera {

/// Returns the SHA-256 of a tensor's bytes as they are stored in a file.
inline std::string digest_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  return sha256({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

}  // namespace tessera
