#include "src/data/image_views.h"

#include <algorithm>
#include <utility>

#include "src/data/decode.h"
#include "src/data/resample_loops.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/data/transforms.h>

namespace tessera {
namespace {

std::uint64_t draw_word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

}  // namespace

ImageViews::ImageViews(const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
                       std::uint64_t seed)
    : filter_(filter_named(preprocessing.interpolation)),
      scaling_(settings.dct_scaling == "auto"),
      max_pixels_(settings.max_pixels),
      seed_(seed) {
  for (const std::string& name : needs.image_views) {
    if (name != "image")
      user_error("the objective asks for the image view ", name, ", but the data pipeline makes only: image");
    views_.push_back({name, settings.augmentation, preprocessing.image_size});
  }
}

std::vector<config::Size> ImageViews::sizes() const {
  std::vector<config::Size> out;
  for (const View& view : views_) out.push_back(view.size);
  return out;
}

std::vector<std::vector<std::uint8_t>> ImageViews::make(const Sample& sample, std::int64_t index,
                                                        std::int64_t round) const {
  try {
    return make_views(sample, index, round);
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), "sample " + sample.key + ": " + error.what());
  }
}

std::vector<std::vector<std::uint8_t>> ImageViews::make_views(const Sample& sample, std::int64_t index,
                                                              std::int64_t round) const {
  const Image& image = sample.image;
  if (image.empty() && sample.encoded.empty()) throw SampleError("no_image", "it has no picture");
  ImageHeader header;
  if (image.empty()) {
    header = check_image(sample.encoded, max_pixels_);
  } else {
    header.height = image.height;
    header.width = image.width;
  }
  std::vector<Crop> crops;
  for (const View& view : views_) {
    Random draws(seed_, Purpose::crop, {draw_word(round), draw_word(index)});
    crops.push_back({random_resized_crop(header.height, header.width, view.settings.scale, view.settings.ratio,
                                         [&] { return draws.uniform(); }),
                     view.size});
  }
  const DecodedPart part = image.empty()
                               ? decode_for(sample.encoded, header, crops, scaling_)
                               : DecodedPart{{image.pixels.data(), image.height, image.width, image.width * 3}};
  std::vector<std::vector<std::uint8_t>> out(views_.size());
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const View& view = views_[i];
    const bool mirrored = Random(seed_, Purpose::flip, {draw_word(round), draw_word(index)}).chance(view.settings.flip);
    const auto [height, width] = view.size;
    thread_local std::vector<std::uint8_t> interleaved;
    interleaved.resize(static_cast<std::size_t>(height * width * 3));
    resample_box(part.pixels, part.at(crops[i].box), height, width, filter_, mirrored, interleaved.data());
    out[i].resize(interleaved.size());
    resample_loops().planes(interleaved.data(), out[i].data(), height * width);
  }
  return out;
}

}  // namespace tessera
