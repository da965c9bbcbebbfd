// Compares decoding and transforms with the reference cases in golden/transforms.
#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tests/reference/all_runners.h"
#include <tessera/base/error.h>
#include <tessera/config/registry.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>

namespace tessera::probe {
namespace {

Image image_of(const at::Tensor& rgb) {
  TORCH_CHECK(rgb.dim() == 3 && rgb.size(2) == 3 && rgb.scalar_type() == at::kByte,
              "rgb: expected uint8 [H, W, 3], got ", rgb.scalar_type(), " ", rgb.sizes());
  const at::Tensor flat = rgb.cpu().contiguous();
  const auto* begin = flat.data_ptr<std::uint8_t>();
  return {flat.size(0), flat.size(1), {begin, begin + flat.numel()}};
}

at::Tensor rgb_of(const Image& image) {
  return to_tensor(image).permute({1, 2, 0}).contiguous();
}

Outputs outputs_of(const Image& resized, const Preprocessing& settings) {
  const at::Tensor mean = at::tensor(at::ArrayRef<double>(settings.mean), at::kDouble).to(at::kFloat).view({3, 1, 1});
  const at::Tensor std = at::tensor(at::ArrayRef<double>(settings.std), at::kDouble).to(at::kFloat).view({3, 1, 1});
  const at::Tensor pixels = (to_tensor(resized).to(at::kFloat) / 255.0 - mean) / std;
  return {{"resized", rgb_of(resized)}, {"pixels", pixels}};
}

Outputs run_decode(Run& run) {
  config::read<config::NoSettings>(run.settings());
  const at::Tensor bytes = run.input("file").cpu().contiguous();
  try {
    return {{"rgb", rgb_of(decode_image({reinterpret_cast<const char*>(bytes.data_ptr<std::uint8_t>()),
                                         static_cast<std::size_t>(bytes.numel())}))}};
  } catch (const SampleError& error) {
    user_error(run.path(), ": ", error.what());
  }
}

Outputs run_transform(Run& run) {
  const auto settings = config::read<Preprocessing>(run.settings());
  return outputs_of(preprocess(image_of(run.input("rgb")), settings), settings);
}

Outputs run_crop_resize(Run& run) {
  const auto settings = config::read<Preprocessing>(run.settings());
  const at::Tensor box = run.input("box").cpu().contiguous();
  TORCH_CHECK(box.numel() == 4, "box: expected top, left, height, width, got ", box.sizes());
  const auto* b = box.data_ptr<std::int64_t>();
  return outputs_of(
      crop_resize(image_of(run.input("rgb")), {b[0], b[1], b[2], b[3]}, settings.image_size, settings.interpolation),
      settings);
}

std::vector<std::string> run_crop_boxes(const std::vector<nlohmann::json>& lines) {
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const nlohmann::json& line = lines[i];
    const auto draws = line.at("draws").get<std::vector<double>>();
    std::size_t used = 0;
    const Box box =
        random_resized_crop(line.at("height"), line.at("width"), line.at("scale").get<std::array<double, 2>>(),
                            line.at("ratio").get<std::array<double, 2>>(), [&] { return draws.at(used++); });
    if (box != line.at("box").get<Box>())
      wrong.push_back(
          concat("line ", i + 1, ": got ", nlohmann::json(box).dump(), ", expected ", line.at("box").dump()));
  }
  return wrong;
}

}  // namespace

void add_transform_runners(Runners& runners) {
  runners.add("image_decode", run_decode);
  runners.add("image_transform", run_transform);
  runners.add("crop_resize", run_crop_resize);
  runners.add_lines("random_resized_crop", run_crop_boxes);
}

}  // namespace tessera::probe
