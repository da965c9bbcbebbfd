#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/digest.h"
#include "src/data/packing/pack.h"

namespace tessera {
namespace {

// Concatenates numbers and texts, each text preceded by its length, so that different samples always produce different bytes.
class Serial {
 public:
  Serial& number(std::int64_t value) {
    std::array<char, sizeof value> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    out_.append(bytes.data(), bytes.size());
    return *this;
  }
  Serial& text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    out_.append(value);
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

template <class T>
std::string_view raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size()};
}

}  // namespace

SampleDigest digest_of(const Sample& sample) {
  Serial out;
  out.text(sample.encoded);
  if (sample.encoded.empty()) out.number(sample.image.height).number(sample.image.width).text(raw(sample.image.pixels));
  out.number(std::ssize(sample.captions));
  for (const std::string& caption : sample.captions) out.text(caption);
  out.text(sample.summary).text(sample.object_tags).number(sample.label).text(raw(sample.mask));
  if (!sample.class_name.empty()) out.text(sample.class_name);
  if (!sample.depth.empty()) out.text(raw(sample.depth));
  out.number(std::ssize(sample.objects));
  for (const ObjectAnnotation& object : sample.objects) {
    out.number(object.label).text(object.phrase).number(object.span[0]).number(object.span[1]).number(object.caption);
    for (const std::int64_t side : object.box) out.number(side);
    if (!object.negatives.empty()) out.number(std::ssize(object.negatives));
    for (const std::string& negative : object.negatives) out.text(negative);
  }
  out.number(sample.region_width).text(raw(sample.regions));
  out.number(std::ssize(sample.negatives));
  for (const HardNegative& negative : sample.negatives) out.text(negative.kind).text(negative.caption);
  const std::string bytes = out.take();
  return {fingerprint(bytes, 1), fingerprint(bytes, 2)};
}

void SetFingerprint::add(const std::string& key, const SampleDigest& digest) {
  const std::string bytes = Serial()
                                .text(key)
                                .number(static_cast<std::int64_t>(digest.low))
                                .number(static_cast<std::int64_t>(digest.high))
                                .take();
  low_ += fingerprint(bytes, 1);
  high_ += fingerprint(bytes, 2);
}

std::string SetFingerprint::text() const {
  return hexadecimal(high_) + hexadecimal(low_);
}

SetFingerprint SetFingerprint::parse(const std::string& text) {
  SetFingerprint out;
  if (text.size() != 32) return out;
  out.high_ = std::strtoull(text.substr(0, 16).c_str(), nullptr, 16);
  out.low_ = std::strtoull(text.substr(16).c_str(), nullptr, 16);
  return out;
}

}  // namespace tessera
