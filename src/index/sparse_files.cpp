#include <algorithm>
#include <array>
#include <filesystem>

#include "src/index/formats.h"
#include "src/index/sparse_files.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::index {
namespace {

struct Ending {
  const char* format;
  const char* ending;
};
constexpr std::array<Ending, 5> kEndings = {
    {{"safetensors", ".safetensors"}, {"csr", ".csr"}, {"jsonl", ".jsonl"}, {"ciff", ".ciff"}, {"text", ".txt"}}};

std::string format_of(const std::string& path, const SparseFileOptions& options) {
  if (!options.format.empty()) return options.format;
  const std::string ending = std::filesystem::path(path).extension().string();
  for (const auto& known : kEndings)
    if (ending == known.ending) return known.format;
  user_error(path, ": its extension does not belong to a format of sparse vectors; name a format: ", join_names(sparse_file_formats()));
}

}  // namespace

const std::vector<std::string>& sparse_file_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const auto& known : kEndings) out.emplace_back(known.format);
    return out;
  }();
  return names;
}

void check_indptr(const std::vector<std::int64_t>& indptr, std::int64_t count, const std::string& path) {
  const bool sound =
      !indptr.empty() && indptr.front() == 0 && indptr.back() == count && std::is_sorted(indptr.begin(), indptr.end());
  if (!sound) user_error(path, ": the starts of its rows do not rise from 0 to the number of weights, ", count);
}

SparseVectors read_sparse_file(const std::string& path, const SparseFileOptions& options) {
  const std::string format = format_of(path, options);
  SparseVectors vectors;
  if (format == "safetensors") {
    vectors = read_safetensors(path);
  } else if (format == "csr") {
    vectors = read_csr(path);
  } else if (format == "jsonl") {
    vectors = read_json_lines(path, options.names);
  } else if (format == "ciff") {
    vectors = read_ciff(path, options.names, options.ciff_scale);
  } else if (format == "text") {
    user_error(path, ": the format text is write-only");
  } else {
    user_error("unknown format ", format, suggestion(format, sparse_file_formats()));
  }
  if (!options.names.are_numbers()) {
    if (vectors.vocab_size > options.names.size())
      user_error(path, ": its vocabulary of ", vectors.vocab_size, " is larger than the ", options.names.size(),
                 " tokens that have names");
    vectors.vocab_size = options.names.size();
  }
  return vectors;
}

void write_sparse_file(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options) {
  const std::string format = format_of(path, options);
  if (format == "safetensors") {
    write_safetensors(path, vectors);
  } else if (format == "csr") {
    write_csr(path, vectors);
  } else if (format == "jsonl") {
    write_json_lines(path, vectors, options.names);
  } else if (format == "ciff") {
    write_ciff(path, vectors, options.names, options.ciff_scale);
  } else if (format == "text") {
    write_text(path, vectors, options.names);
  } else {
    user_error("unknown format ", format, suggestion(format, sparse_file_formats()));
  }
}

}  // namespace tessera::index
