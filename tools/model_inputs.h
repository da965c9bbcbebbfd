#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

/// What programs read to put through a model.
namespace tessera::tools {

/// A picture as the model's input, [3, H, W]. Throws UserError naming the file.
inline at::Tensor read_picture(const std::string& path, const Preprocessing& preprocessing) {
  try {
    return to_tensor(preprocess(decode_image(io::read_file(path)), preprocessing));
  } catch (const SampleError& error) {
    user_error(path, ": ", error.what());
  }
}

/// One text a line; the newline after the last one begins no further text.
inline std::vector<std::string> read_texts(const std::string& path) {
  std::vector<std::string> lines = split(io::read_file(path), '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return lines;
}

}  // namespace tessera::tools
