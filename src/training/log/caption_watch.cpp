#include <cmath>
#include <string_view>
#include <unordered_map>

#include <ATen/ATen.h>

#include "src/training/log/caption_watch.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr int kBatches = 20;  // number of batches that are checked
constexpr int kBad = 3;       // number of bad batches that cause the warning
constexpr std::int64_t kFewest = 8;
constexpr double kShared = 0.25;
constexpr double kOfChance = 0.5;

bool many_are_equal(const CaptionCounts& counts) {
  if (counts.texts < kFewest) return false;
  const auto texts = static_cast<double>(counts.texts);
  return static_cast<double>(counts.commonest) >= kShared * texts || counts.least_loss >= kOfChance * std::log(texts);
}

std::string short_caption(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  return text.size() <= kLongest ? text : repair_utf8(text.substr(0, kLongest)) + "...";
}

}  // namespace

CaptionCounts count_captions(const TowerInput& texts) {
  struct Seen {
    std::int64_t count = 0, row = 0;
  };
  const at::Tensor ids = texts.ids.contiguous();
  const at::Tensor present = texts.mask.defined() ? texts.mask.any(1) : at::ones({ids.size(0)}, at::kBool);
  const auto width = static_cast<std::size_t>(ids.size(1)) * sizeof(std::int64_t);
  const char* bytes = reinterpret_cast<const char*>(ids.const_data_ptr<std::int64_t>());
  std::unordered_map<std::string_view, Seen> seen;
  CaptionCounts out;
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    if (!present.const_data_ptr<bool>()[row]) continue;
    Seen& own = seen[{bytes + static_cast<std::size_t>(row) * width, width}];
    own = {own.count + 1, row};
    ++out.texts;
  }
  for (const auto& [text, own] : seen) {
    const auto count = static_cast<double>(own.count);
    out.least_loss += count * std::log(count) / static_cast<double>(out.texts);
    if (own.count > out.commonest) out.commonest = own.count, out.commonest_row = own.row;
  }
  return out;
}

std::optional<std::string> CaptionWatch::note(const Batch& batch) {
  const auto found = batch.texts.find(view_);
  if (batches_ == kBatches || bad_ == kBad || found == batch.texts.end() || !found->second.ids.defined())
    return std::nullopt;
  ++batches_;
  const CaptionCounts counts = count_captions(found->second);
  if (!many_are_equal(counts) || ++bad_ < kBad) return std::nullopt;
  return line(found->second, counts);
}

std::string CaptionWatch::line(const TowerInput& texts, const CaptionCounts& counts) const {
  at::Tensor ids = texts.ids[counts.commonest_row].contiguous();
  if (texts.mask.defined()) ids = ids.masked_select(texts.mask[counts.commonest_row]);
  const std::string text =
      tokenizer_->decode({ids.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>() + ids.numel()});
  return concat("captions: ", counts.commonest, " of the ", counts.texts, " of a batch are ",
                strip(text).empty() ? "empty" : concat("\"", short_caption(std::string(strip(text))), "\""),
                ". Pairs with equal captions cannot be distinguished: a contrast cannot fall below ",
                fixed(counts.least_loss, 2), ", and chance is ",
                fixed(std::log(static_cast<double>(counts.texts)), 2),
                ". Check what data.train uses as captions, or set the objective's mask_duplicates");
}

}  // namespace tessera
