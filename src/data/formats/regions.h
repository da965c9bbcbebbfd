#pragma once

#include <string>
#include <string_view>

#include <tessera/data/sample.h>

namespace tessera {

/// Sets a sample's region features [R, F] from a file's bytes, which may be a .npy (see read_npy) or a safetensors file with float16,
/// bfloat16, float32 or float64. `tensor` is the name of the tensor in a safetensors file; if it is empty, the first tensor is read. Throws
/// SampleError `bad_regions` for other bytes; the message says what was found.
void set_regions(std::string_view file, const std::string& tensor, Sample& sample);

}  // namespace tessera
