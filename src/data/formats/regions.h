#pragma once

#include <string>
#include <string_view>

#include <tessera/data/sample.h>

namespace tessera {

/// Takes region features [R, F] out of a file's bytes: a .npy (see read_npy), or a safetensors file of float16,
/// bfloat16, float32 or float64, of which `tensor` names one; empty: the one that comes first in the file. Throws
/// SampleError `bad_regions` saying what came.
void set_regions(std::string_view file, const std::string& tensor, Sample& sample);

}  // namespace tessera
