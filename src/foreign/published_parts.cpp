#include <filesystem>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/io/pytorch_file.h"
#include "src/foreign/publish.h"
#include "src/foreign/open_clip.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOpenClipConfig = "open_clip_config.json";

std::string folder_of(const std::string& path) {
  return fs::is_directory(path) ? path : fs::absolute(path).parent_path().string();
}

/// Returns true if our tensor `written` has the same values as the published tensor `theirs`. Ignores dtypes and dimensions of size one.
bool holds(const at::Tensor& written, const at::Tensor& theirs) {
  return written.numel() == theirs.numel() && written.squeeze().sizes() == theirs.squeeze().sizes() &&
         at::equal(written.reshape_as(theirs).nan_to_num(), theirs.to(written.scalar_type()).nan_to_num());
}

}  // namespace

std::string compute_digest(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  return sha256({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

std::map<std::string, std::string> small_files(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    const bool wanted = ending == ".json" || ending == ".txt" || ending == ".model" || ending == ".jinja";
    if (wanted && entry.is_regular_file()) out[entry.path().filename().string()] = io::read_file(entry.path().string());
  }
  return out;
}

bool is_published_folder(const std::string& path) {
  if (!fs::is_directory(path)) return false;
  return is_foreign_folder(path) || (fs::is_regular_file(path + "/" + kOpenClipConfig) && is_open_clip_checkpoint(path));
}

ForeignModel read_published_folder(const std::string& folder) {
  if (is_foreign_folder(folder)) return read_foreign_folder(folder);
  const std::string config = folder + "/" + kOpenClipConfig;
  if (!fs::is_regular_file(config))
    user_error(folder, ": is not a published model: expected config.json of transformers or timm, or ", kOpenClipConfig);
  return open_clip_model(io::read_file(config), config);
}

std::shared_ptr<const PublishedParts> published_parts(const std::string& path, const ForeignModel& foreign, const NamedTensors& ours,
                                                      const std::string& state) {
  const std::string folder = folder_of(path);
  const bool open_clip = foreign.library == "OpenCLIP";
  auto parts = std::make_shared<PublishedParts>();
  parts->library = open_clip ? "open_clip" : foreign.library;
  parts->files = small_files(folder);
  const NamedTensors written = write_by_rules(foreign.rules, ours).tensors;
  const std::vector<std::string> files = open_clip ? std::vector{find_open_clip_weights(path)} : foreign_weight_files(folder);
  for (const std::string& file : files) {
    if (!io::is_pytorch_file(file)) parts->weights[fs::path(file).filename().string()] = io::load_safetensors_layout(file);
    for (const auto& [name, tensor] : open_clip ? load_weights(file, state) : io::load_tensors(file, state)) {
      const auto found = written.find(name);
      if (found != written.end() && holds(found->second, tensor)) continue;
      parts->tensors[name] = tensor.clone();
      if (found != written.end()) parts->digests[name] = compute_digest(found->second);
    }
  }
  return parts;
}

ModelFile load_published_folder(const std::string& folder, const CheckpointOptions& options) {
  ForeignModel foreign = read_published_folder(folder);
  if (options.image_size) foreign.model = with_image_size(foreign.model, *options.image_size);
  ModelFile file = is_foreign_folder(folder) ? load_foreign_model(folder, options)
                                             : from_open_clip(find_open_clip_weights(folder), foreign, options.state);
  file.published = published_parts(folder, foreign, file.weights, options.state);
  return file;
}

}  // namespace tessera
