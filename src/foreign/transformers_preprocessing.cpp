#include "src/foreign/transformers_family.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tessera {
namespace {

std::array<double, 3> channels(const ForeignConfig& c, const std::string& key, const std::array<double, 3>& otherwise) {
  return c.get(key, otherwise);
}

std::string interpolation_of(const ForeignConfig& c) {
  constexpr int kBilinear = 2, kBicubic = 3;
  const auto kind = c.get<std::string>("image_processor_type", "");
  const bool usually_bilinear = kind.starts_with("DINOv3") || kind.starts_with("ViT") || kind.starts_with(kNaflexProcessor);
  const int resample = c.get("resample", usually_bilinear ? kBilinear : kBicubic);
  if (resample != kBilinear && resample != kBicubic)
    c.refuse("resample", "is neither bilinear (2) nor bicubic (3); 0 is nearest, 1 Lanczos, 4 box and 5 Hamming");
  return resample == kBilinear ? "bilinear" : "bicubic";
}

/// Returns the size at a key. The value is a number, {shortest_edge}, or {height, width}.
config::Size size_of(const ForeignConfig& c, const std::string& key, const config::Size& otherwise) {
  if (!c.has(key) || !c.json().at(key).is_object()) return c.size(key, otherwise);
  const ForeignConfig size = c.section(key);
  const auto edge = [&](const char* name) { return size.get<std::int64_t>(name, 0); };
  const config::Size out = size.has("shortest_edge") ? config::Size(edge("shortest_edge")) : config::Size(edge("height"), edge("width"));
  if (size.has("longest_edge") || out.height < 1 || out.width < 1)
    c.refuse(key, "is not an image size that our preprocessing supports: use shortest_edge, or height and width");
  return out;
}

/// Returns the crop_pct (as in timm) with which our transform resizes images to `resized` pixels before it crops them
/// to `kept` pixels.
double share_of(std::int64_t kept, std::int64_t resized) {
  const auto gives = [&](double share) { return static_cast<std::int64_t>(std::floor(static_cast<double>(kept) / share)) == resized; };
  const double share = static_cast<double>(kept) / static_cast<double>(resized);
  return gives(share) ? share : static_cast<double>(kept) / (static_cast<double>(resized) + 0.5);
}

void read_sizes(Preprocessing& p, const ForeignConfig& c) {
  if (c.get<std::string>("image_processor_type", "").starts_with(kNaflexProcessor)) {
    p.resize_mode = "naflex";
    p.max_patches = c.get("max_num_patches", p.max_patches);
    if (c.has("patch_size")) p.patch_size = c.size("patch_size", 0);
    return;
  }
  const bool crops = c.get("do_center_crop", c.has("crop_size"));
  const bool object = c.has("size") && c.json().at("size").is_object();
  const bool keeps_ratio = object ? c.section("size").has("shortest_edge") : c.has("size") && crops;
  p.resize_mode = keeps_ratio ? "shortest" : "squash";
  p.crop_rounding = "down";
  const config::Size resized = size_of(c, "size", p.image_size);
  p.image_size = crops ? size_of(c, "crop_size", resized) : resized;
  if (p.image_size.height > resized.height || p.image_size.width > resized.width)
    c.refuse("crop_size", "is larger than the resized image, and our preprocessing adds no border");
  p.crop_pct = share_of(p.image_size.height, resized.height);
  if (share_of(p.image_size.width, resized.width) != p.crop_pct)
    c.refuse("crop_size", "keeps different shares of height and width");
}

/// Reads mean, standard deviation and rescale_factor. Our mean and std apply to values divided by 255, so a
/// rescale_factor other than 1/255 is folded into them.
void read_values(Preprocessing& p, const ForeignConfig& c) {
  constexpr double kLevels = 255, kTolerance = 1e-6;
  p.mean = channels(c, "image_mean", p.mean);
  p.std = channels(c, "image_std", p.std);
  if (!c.get("do_normalize", true)) {
    p.mean = {0, 0, 0};
    p.std = {1, 1, 1};
  }
  const double factor = c.get("rescale_factor", 1 / kLevels) * kLevels;
  if (!(factor > 0)) c.refuse("rescale_factor", "is not above 0");
  if (std::abs(factor - 1) < kTolerance) return;
  for (auto* values : {&p.mean, &p.std})
    for (double& value : *values) value /= factor;
}

/// Returns the settings of the image processor, from the file from which transformers reads them; nullopt if the folder has none.
std::optional<ForeignConfig> image_processor_of(const std::string& folder) {
  const std::string whole = folder + "/" + kProcessorName, path = folder + "/" + kPreprocessorName;
  if (std::filesystem::is_regular_file(whole))
    if (const ForeignConfig c = ForeignConfig::of_file(whole); c.has(kImageProcessor)) return c.section(kImageProcessor);
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  return ForeignConfig::of_file(path);
}

}  // namespace

void read_preprocessing(Preprocessing& p, const std::string& folder) {
  const auto found = image_processor_of(folder);
  if (!found) return;
  const ForeignConfig& c = *found;
  c.expect("do_resize", true);
  c.expect("do_rescale", true);
  c.expect("do_pad", false);
  read_values(p, c);
  p.interpolation = interpolation_of(c);
  read_sizes(p, c);
}

nlohmann::json preprocessor_config(const Preprocessing& p, const char* processor) {
  constexpr int kBilinear = 2, kBicubic = 3;
  constexpr double kScale = 1.0 / 255;
  const auto size_of = [](std::int64_t height, std::int64_t width) { return nlohmann::json{{"height", height}, {"width", width}}; };
  const auto resized = [&](std::int64_t side) { return static_cast<std::int64_t>(std::floor(static_cast<double>(side) / p.crop_pct)); };
  nlohmann::json out = {{"image_processor_type", processor}, {"do_resize", true},   {"resample", p.interpolation == "bilinear" ? kBilinear : kBicubic},
              {"do_rescale", true},                {"rescale_factor", kScale}, {"do_normalize", true},
              {"image_mean", p.mean},              {"image_std", p.std},  {"do_convert_rgb", true}};
  if (keeps_shapes(p) && processor == std::string_view(kNaflexProcessor)) {
    if (p.patch_size) out["patch_size"] = size_json(*p.patch_size);
    out["max_num_patches"] = p.max_patches;
    return out;
  }
  const std::int64_t height = resized(p.image_size.height), width = resized(p.image_size.width);
  const bool shortest = p.resize_mode == "shortest", crops = shortest || p.crop_pct < 1;
  out["do_center_crop"] = crops;
  out["size"] = shortest ? nlohmann::json{{"shortest_edge", std::min(height, width)}} : size_of(height, width);
  if (crops) out["crop_size"] = size_of(p.image_size.height, p.image_size.width);
  return out;
}

}  // namespace tessera
