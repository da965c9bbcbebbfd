#pragma once

#include <string>
#include <string_view>

#include <tessera/data/sample.h>

namespace tessera {

/// Sets a sample's region features [R, F] from a file's bytes: a .npy (see read_npy), or a safetensors file with float16,
/// bfloat16, float32 or float64. `tensor` names the tensor; empty: the first in the file. Throws SampleError `bad_regions` that
/// says what was found instead.
void set_regions(std::string_view file, const std::string& tensor, Sample& sample);

}  // namespace tessera
