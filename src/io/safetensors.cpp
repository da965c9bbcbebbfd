#include <algorithm>
#include <bit>
#include <iterator>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/io/pytorch_file.h"
#include "src/io/safetensors_header.h"
#include "src/io/stand_in.h"
#include "src/io/tar.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;

struct OpenedHeader {
  SafetensorsHeader header;
  std::uint64_t data_start;
  SafetensorsLayout layout;
};

/// If the file is a PyTorch file, another archive or a text file, throws a UserError that says so.
void refuse_other_kinds(const RandomAccessFile& file, const std::string& path) {
  if (is_pytorch_file(path))
    user_error(path, ": is a PyTorch file or another archive, expected a safetensors file; if it holds an "
                     "OpenCLIP model, convert it: tessera-convert --from open_clip --architecture NAME ",
               path, " OUT.safetensors");
  if (const std::string text = describe_text(file.read(0, 200)); !text.empty())
    user_error(path, ": neither safetensors nor a PyTorch file: ", text);
}

OpenedHeader read_header(const RandomAccessFile& file, const std::string& path) {
  if (file.size() == 0) user_error(path, ": the file is empty, expected a safetensors file");
  if (file.size() < kLengthBytes) user_error(path, ": not a safetensors file: only ", file.size(), " bytes long");
  std::uint64_t length = 0;
  file.read(0, &length, kLengthBytes);
  const std::uint64_t rest = file.size() - kLengthBytes;
  if (length > std::min(rest, kMaxHeaderBytes)) refuse_other_kinds(file, path);
  if (length > rest)
    user_error(path, ": not a safetensors file, or truncated: it announces a header of ", length,
               " bytes, but has only ", rest, " more");
  if (length > kMaxHeaderBytes)
    user_error(path, ": its header of ", length, " bytes is longer than the limit of ", kMaxHeaderBytes);
  std::string text(length, '\0');
  file.read(kLengthBytes, text.data(), length);
  SafetensorsHeader header = parse_safetensors_header(text, rest - length, path);
  return {std::move(header), kLengthBytes + length, {std::move(text), rest - length}};
}

std::vector<std::int64_t> without_ones(at::IntArrayRef shape) {
  std::vector<std::int64_t> out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](std::int64_t size) { return size != 1; });
  return out;
}

// Converts a tensor to the shape and dtype of a header's entry, on the CPU. Returns an undefined tensor if the shapes do not match or
// the entry's dtype cannot represent the values exactly.
at::Tensor as_entry(const at::Tensor& tensor, const TensorEntry& entry) {
  if (without_ones(tensor.sizes()) != without_ones(entry.shape)) return {};
  const at::Tensor here = tensor.detach().cpu().contiguous();
  const at::Tensor stored = here.to(entry.dtype);
  const bool exact = entry.dtype == here.scalar_type() || at::equal(stored.to(here.scalar_type()).nan_to_num(), here.nan_to_num());
  return exact ? stored : at::Tensor();
}

struct OutputTensor {
  const std::string* name;
  at::Tensor tensor;
};

// Sorts by dtype, the widest first, then by name, like the reference library. In this order every tensor is aligned, because the header's
// size is a multiple of 8 bytes.
std::vector<OutputTensor> in_file_order(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<OutputTensor> order;
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK(tensor.defined(), "save_safetensors: tensor ", name, " is undefined");
    TORCH_CHECK(name != "__metadata__", "save_safetensors: a tensor cannot be named __metadata__");
    TORCH_CHECK(safetensors_dtype_name(tensor.scalar_type()) != nullptr, "save_safetensors: tensor ", name,
                " has dtype ", tensor.scalar_type(), ", which is not supported");
    order.push_back({&name, tensor.detach()});
  }
  std::stable_sort(order.begin(), order.end(), [](const OutputTensor& a, const OutputTensor& b) {
    return safetensors_dtype_rank(a.tensor.scalar_type()) > safetensors_dtype_rank(b.tensor.scalar_type());
  });
  return order;
}

std::string quoted(const std::string& text, const char* what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    TORCH_CHECK(false, "save_safetensors: ", what, " is not UTF-8");
  }
}

std::string header_text(const std::vector<OutputTensor>& order, const std::map<std::string, std::string>& metadata) {
  std::string out = "{";
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata)
      out += (out.back() == '{' ? "" : ",") + quoted(key, "a metadata key") + ":" +
             quoted(value, ("metadata " + key).c_str());
    out += "}";
  }
  std::uint64_t place = 0;
  for (const OutputTensor& item : order) {
    const std::uint64_t end = place + item.tensor.nbytes();
    out += (out.size() == 1 ? "" : ",") + quoted(*item.name, "a tensor's name") + ":{\"dtype\":\"" +
           safetensors_dtype_name(item.tensor.scalar_type()) +
           "\",\"shape\":" + nlohmann::json(item.tensor.sizes().vec()).dump() + ",\"data_offsets\":[" +
           std::to_string(place) + "," + std::to_string(end) + "]}";
    place = end;
  }
  out += "}";
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace

std::map<std::string, std::string> load_safetensors_metadata(const std::string& path) {
  return read_header(RandomAccessFile(path), path).header.metadata;
}

TensorFile load_safetensors(const std::string& path) {
  const RandomAccessFile file(path);
  auto [header, data_start, layout] = read_header(file, path);
  TensorFile out;
  out.metadata = std::move(header.metadata);
  for (const TensorEntry& entry : header.entries) {
    // Using a bool whose byte is neither 0 nor 1 is undefined behavior, so bools are first read as uint8.
    const bool is_bool = entry.dtype == at::kBool;
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(is_bool ? at::kByte : entry.dtype));
    file.read(data_start + entry.begin, tensor.data_ptr(), entry.end - entry.begin);
    out.tensors[entry.name] = is_bool ? tensor.ne(0) : tensor;
  }
  return out;
}

SafetensorsLayout load_safetensors_layout(const std::string& path) {
  return read_header(RandomAccessFile(path), path).layout;
}

bool fits_layout(const SafetensorsLayout& layout, const std::map<std::string, at::Tensor>& tensors, const std::string& origin) {
  for (const TensorEntry& entry : parse_safetensors_header(layout.header, layout.data_bytes, origin).entries) {
    const auto found = tensors.find(entry.name);
    if (found == tensors.end() || !as_entry(found->second, entry).defined()) return false;
  }
  return true;
}

void save_safetensors_as(const SafetensorsLayout& layout, const std::string& path,
                         const std::map<std::string, at::Tensor>& tensors) {
  AtomicFile file(path);
  const std::uint64_t length = layout.header.size();
  file.write(&length, kLengthBytes);
  file.write(layout.header);
  for (const TensorEntry& entry : parse_safetensors_header(layout.header, layout.data_bytes, path).entries) {
    const at::Tensor bytes = as_entry(tensors.at(entry.name), entry);
    TORCH_CHECK(bytes.defined(), "save_safetensors_as: tensor ", entry.name, " does not fit the layout");
    file.write(bytes.data_ptr(), bytes.nbytes());
  }
  file.commit();
}

void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::vector<OutputTensor> order = in_file_order(tensors);
  const std::string header = header_text(order, metadata);
  const std::uint64_t length = header.size();
  AtomicFile file(path);
  file.write(&length, kLengthBytes);
  file.write(header);
  for (const OutputTensor& item : order) {
    const at::Tensor bytes = item.tensor.cpu().contiguous();  // one tensor at a time, to avoid a copy of the whole model
    file.write(bytes.data_ptr(), bytes.nbytes());
  }
  file.commit();
}

}  // namespace tessera::io
