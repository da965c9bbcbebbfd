#include <algorithm>
#include <cmath>

#include "src/data/image/encode.h"
#include "tools/bench/data_bench.h"
#include <tessera/base/random.h>
#include <tessera/data/image/transforms.h>

namespace tessera::bench {
namespace {

constexpr double kOctave = 14.0;  // strength of the noise in each octave, in gray levels
constexpr double kFinest = 6.0;   // strength of the finest octave; it is low because lenses are soft
constexpr double kColor = 0.25;  // strength of each color's own noise, relative to the common noise

Image noise_image(std::int64_t height, std::int64_t width, Random& random) {
  Image image{height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3))};
  for (std::uint8_t& value : image.pixels) value = static_cast<std::uint8_t>(random.next() >> 24);
  return image;
}

void add_octave(const Image& noise, double strength, std::vector<double>& levels) {
  constexpr double spread = 73.9;  // standard deviation of uniformly distributed bytes
  for (std::size_t i = 0; i < levels.size(); i += 3) {
    const double grey = noise.pixels[i] - 127.5;
    for (std::size_t c = 0; c < 3; ++c)
      levels[i + c] += strength / spread * (grey + kColor * (noise.pixels[i + c] - 127.5));
  }
}

// Makes a rectangle lighter or darker than its surroundings.
void add_edges(std::int64_t height, std::int64_t width, Random& random, std::vector<double>& levels) {
  const std::int64_t top = random.below(height), left = random.below(width);
  const std::int64_t bottom = top + 1 + random.below(height - top), right = left + 1 + random.below(width - left);
  const double step = random.uniform(-40, 40);
  for (std::int64_t y = top; y < bottom; ++y)
    for (std::int64_t i = (y * width + left) * 3; i < (y * width + right) * 3; ++i)
      levels[static_cast<std::size_t>(i)] += step;
}

class Photographs final : public IndexedSource {
 public:
  Photographs(std::int64_t height, std::int64_t width, std::int64_t count)
      : described_(concat("generated, ", width, " x ", height)) {
    for (std::int64_t i = 0; i < count; ++i)
      files_.push_back(encode_jpeg(photograph_like(height, width, static_cast<std::uint64_t>(i)), 90));
  }
  std::int64_t size() const override { return std::ssize(files_); }
  Sample get(std::int64_t index) const override {
    Sample sample;
    sample.key = std::to_string(index);
    sample.encoded = files_[static_cast<std::size_t>(index)];
    return sample;
  }
  std::string describe() const override { return described_; }

 private:
  std::string described_;
  std::vector<std::string> files_;
};

}  // namespace

Image photograph_like(std::int64_t height, std::int64_t width, std::uint64_t seed) {
  Random random(seed, Purpose::shapes, {0x9407});
  std::vector<double> levels(static_cast<std::size_t>(height * width * 3), 118.0);
  for (int i = 0; i < 12; ++i) add_edges(height, width, random, levels);
  for (std::int64_t grain = 2; grain < std::max(height, width); grain *= 2) {
    const auto cells = [&](std::int64_t length) { return std::max<std::int64_t>(length / grain, 1) + 1; };
    add_octave(resize(noise_image(cells(height), cells(width), random), height, width, "bicubic"),
               grain == 2 ? kFinest : kOctave, levels);
  }
  Image image{height, width, std::vector<std::uint8_t>(levels.size())};
  std::transform(levels.begin(), levels.end(), image.pixels.begin(),
                 [](double level) { return static_cast<std::uint8_t>(std::lround(std::clamp(level, 0.0, 255.0))); });
  return image;
}

std::shared_ptr<const Source> photograph_source(std::int64_t height, std::int64_t width, std::int64_t count) {
  return std::make_shared<Photographs>(height, width, count);
}

}  // namespace tessera::bench
