#include <tessera/data/loading/caption_sampler.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "src/data/formats/captions.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using Draw = std::function<double()>;
using SentencePlaces = std::vector<std::int64_t>;  // indices of sentences

constexpr const char* kBetweenSentences = ". ";

std::int64_t scaled(double drawn, std::int64_t count) {
  return static_cast<std::int64_t>(drawn * static_cast<double>(count));
}

/// Draws distinct numbers below a bound. When all have been drawn, it starts over.
class DifferentNumbers {
 public:
  explicit DifferentNumbers(std::int64_t bound) : bound_(bound) {}

  std::int64_t next(const Draw& draw) {
    if (left_.empty()) {
      left_.resize(static_cast<std::size_t>(bound_));
      std::iota(left_.begin(), left_.end(), std::int64_t{0});
    }
    std::swap(left_.front(), left_[static_cast<std::size_t>(scaled(draw(), std::ssize(left_)))]);
    const std::int64_t taken = left_.front();
    left_.erase(left_.begin());
    return taken;
  }

 private:
  std::int64_t bound_;
  SentencePlaces left_;
};

// Returns the named fields in the order of the names; missing ones are skipped.
std::vector<const TextField*> chosen_fields(const std::vector<TextField>& texts,
                                            const std::optional<std::vector<std::string>>& names) {
  std::vector<const TextField*> out;
  if (!names) {
    for (const TextField& field : texts) out.push_back(&field);
    return out;
  }
  for (const std::string& name : *names)
    if (const auto found = std::ranges::find(texts, name, &TextField::name); found != texts.end())
      out.push_back(&*found);
  return out;
}

std::vector<std::string> sentences_of_fields(const std::vector<const TextField*>& fields) {
  std::vector<std::string> out;
  for (const TextField* field : fields)
    for (const std::string& text : field->texts) {
      if (!field->is_list)
        std::ranges::move(caption_sentences(text), std::back_inserter(out));
      else if (!text.empty())
        out.push_back(text);
    }
  return out;
}

std::string join_sentences(const std::vector<std::string>& sentences, const SentencePlaces& places) {
  std::string out;
  for (const std::int64_t place : places) {
    if (!out.empty()) out += kBetweenSentences;
    out += sentences[static_cast<std::size_t>(place)];
  }
  return out;
}

std::string whole_caption(const std::vector<const TextField*>& fields) {
  for (const TextField* field : fields) {
    std::string whole;
    for (const std::string& text : field->texts)
      if (!text.empty()) whole += whole.empty() ? text : kBetweenSentences + text;
    if (!whole.empty()) return whole;
  }
  return {};
}

/// Draws the captions of one entry of `slots`, one after the other.
class SlotDraws {
 public:
  SlotDraws(const CaptionSlots& slots, const std::vector<std::string>& sentences, const Draw& draw)
      : slots_(slots), sentences_(sentences), draw_(draw) {}

  std::string next() {
    const std::int64_t available = std::ssize(sentences_);
    if (available == 0) return {};
    const std::int64_t wanted = std::min(draw_length(), available);
    return join_sentences(sentences_, wanted == 1 || draws_run() ? run(wanted) : scattered(wanted));
  }

 private:
  std::int64_t draw_length() const {
    const std::int64_t least = slots_.min_sentences, most = slots_.max_sentences;
    return most > least ? least + scaled(draw_(), most - least + 1) : least;
  }

  bool draws_run() const {
    if (slots_.consecutive <= 0 || slots_.consecutive >= 1) return slots_.consecutive >= 1;
    return draw_() < slots_.consecutive;
  }

  SentencePlaces run(std::int64_t length) {
    const std::int64_t starts = std::ssize(sentences_) - length + 1;
    const std::int64_t start = slots_.distinct ? unused_.try_emplace(starts, starts).first->second.next(draw_)
                                               : scaled(draw_(), starts);
    SentencePlaces out(static_cast<std::size_t>(length));
    std::iota(out.begin(), out.end(), start);
    return out;
  }

  SentencePlaces scattered(std::int64_t length) const {
    DifferentNumbers places(std::ssize(sentences_));
    SentencePlaces out;
    for (std::int64_t i = 0; i < length; ++i) out.push_back(places.next(draw_));
    return out;
  }

  const CaptionSlots& slots_;
  const std::vector<std::string>& sentences_;
  const Draw& draw_;
  // The start positions that no sequence of consecutive sentences has used yet. The key is the number of possible start positions, which
  // depends on the drawn length.
  std::map<std::int64_t, DifferentNumbers> unused_;
};

}  // namespace

std::optional<config::Problem> validate(const CaptionSlots& slots) {
  if (slots.max_sentences < slots.min_sentences)
    return config::Problem{"max_sentences", concat("is ", slots.max_sentences, ", less than min_sentences (",
                                                   slots.min_sentences, ")")};
  return std::nullopt;
}

std::int64_t CaptionSampler::count() const {
  std::int64_t total = 0;
  for (const CaptionSlots& slots : settings_.slots) total += slots.count;
  return total;
}

std::vector<std::string> CaptionSampler::sample(const std::vector<TextField>& texts,
                                                const std::function<double()>& draw) const {
  std::vector<std::string> out;
  for (const CaptionSlots& slots : settings_.slots) {
    const auto fields = chosen_fields(texts, slots.fields ? slots.fields : settings_.fields);
    if (slots.whole) {
      out.insert(out.end(), static_cast<std::size_t>(slots.count), whole_caption(fields));
      continue;
    }
    const std::vector<std::string> sentences = sentences_of_fields(fields);
    SlotDraws draws(slots, sentences, draw);
    for (std::int64_t i = 0; i < slots.count; ++i) out.push_back(draws.next());
  }
  return out;
}

}  // namespace tessera
