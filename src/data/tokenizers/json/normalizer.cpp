#include "src/data/tokenizers/json/normalizer.h"

#include <algorithm>
#include <vector>

#include "src/base/digest.h"
#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/pattern.h"
#include "src/data/tokenizers/normalization.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

using Steps = std::vector<Normalizer>;

/// Replaces the characters one by one. step(code, out) appends the replacement of a character to `out`.
template <class Step>
void rewrite(Segment& segment, std::string& spare, const Step& step) {
  spare.clear();
  std::size_t head = 0;
  for (std::size_t at = 0; at < segment.text.size();) {
    const bool in_head = at < segment.head;
    step(next_code(segment.text, at), spare);
    if (in_head) head = spare.size();
  }
  segment.text.swap(spare);
  segment.head = head;
}

void strip_accents(Segment& segment, std::string& spare) {
  if (unicode::is_ascii(segment.text)) return;
  rewrite(segment, spare, [](char32_t code, std::string& out) {
    if ((class_of(code) & combining) == 0) unicode::append_utf8(out, code);
  });
}

// Removes or replaces control characters and rare white space, as translation models do.
void clean_for_translation(Segment& segment, std::string& spare) {
  enum Change : std::uint8_t { kept, removed, to_space };
  static const unicode::PageTable<std::uint8_t> changes("1-8 B E-1F 7F 8F 9F =2 9-A C-D 1680 200B-200F 2028-2029 2581 FEFF FFFD");
  rewrite(segment, spare, [](char32_t code, std::string& out) {
    if (changes[code] != removed) unicode::append_utf8(out, changes[code] == to_space ? U' ' : code);
  });
}

void append_lower(char32_t code, std::string& out) {
  if (code < 0x80)
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code | 0x20 : code);
  else if (code == capital_dotted_i)
    out += "i\u0307";
  else
    unicode::append_utf8(out, lower_of(code));
}

void lowercase(Segment& segment, std::string& spare) {
  if (unicode::is_ascii(segment.text)) return lower_ascii(segment.text);
  rewrite(segment, spare, append_lower);
}

std::string normal_form(std::string_view text, unicode::Form form) {
  return unicode::encode(unicode::normal_form(unicode::decode(text), form, unicode::Version::hugging_face));
}

bool may_change(std::string_view text, unicode::Form form) {
  if (unicode::is_ascii(text)) return false;
  for (std::size_t at = 0; at < text.size();)
    if (unicode::may_change(next_code(text, at), form)) return true;
  return false;
}

template <unicode::Form form>
void normalize(Segment& segment, std::string& /*spare*/) {
  if (!may_change(segment.text, form)) return;
  const std::size_t head = segment.head == 0 ? 0 : normal_form(std::string_view(segment.text).substr(0, segment.head), form).size();
  segment.text = normal_form(segment.text, form);
  if (segment.head > 0) segment.head = segment.text.empty() ? 0 : std::max(head, length_of(segment.text[0]));
}

void add_replace(const Part& part, Steps& out) {
  out.emplace_back([pattern = make_pattern(part.at("pattern"), part.origin()), content = part.text("content")](Segment& segment,
                                                                                                             std::string& spare) {
    thread_local std::vector<Span> found;
    found.clear();
    pattern(segment.text, found);
    if (found.empty()) return;
    spare.clear();
    std::size_t behind = 0, head = 0;
    const auto append_kept = [&](std::size_t end) {
      if (behind < segment.head) head = spare.size() + std::min(end, segment.head) - behind;
      spare.append(segment.text, behind, end - behind);
    };
    for (const Span& span : found) {
      append_kept(span.begin);
      spare += content;
      if (segment.head > 0 && span.end <= segment.head) head = spare.size();
      behind = span.end;
    }
    append_kept(segment.text.size());
    segment.text.swap(spare);
    segment.head = head;
  });
}

void add_prepend(const Part& part, Steps& out) {
  out.emplace_back([added = part.text("prepend")](Segment& segment, std::string&) {
    if (segment.text.empty()) return;
    segment.text.insert(0, added);
    if (segment.head > 0) segment.head += added.size();
  });
}

void add_strip(const Part& part, Steps& out) {
  out.emplace_back([left = part.flag("strip_left", true), right = part.flag("strip_right", true)](Segment& segment, std::string&) {
    std::string& text = segment.text;
    const std::size_t begin = left ? end_of_row(text, 0, white_space) : 0;
    std::size_t end = text.size();
    while (right && end > begin) {
      const std::size_t last = before(text, end);
      if ((class_of(code_at(text, last)) & white_space) == 0) break;
      end = last;
    }
    text.resize(end);
    text.erase(0, begin);
    segment.head = std::min(segment.head - std::min(segment.head, begin), text.size());
  });
}

void write_bytes(Segment& segment, std::string& spare) {
  spare.clear();
  append_byte_characters(std::string_view(segment.text).substr(0, segment.head), spare);
  const std::size_t head = spare.size();
  append_byte_characters(std::string_view(segment.text).substr(segment.head), spare);
  segment.text.swap(spare);
  segment.head = head;
}

bool is_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class Bert {
 public:
  explicit Bert(const Part& part)
      : clean_(part.flag("clean_text", true)),
        cjk_(part.flag("handle_chinese_chars", true)),
        lower_(part.flag("lowercase", true)),
        accents_(part.flag("strip_accents", lower_)) {}

  void operator()(Segment& segment, std::string& spare) const {
    if (unicode::is_ascii(segment.text)) {
      if (clean_) clean_ascii(segment);
      if (lower_) lower_ascii(segment.text);
      return;
    }
    spare.clear();
    append_normalized(std::string_view(segment.text).substr(0, segment.head), spare);
    segment.head = spare.size();
    spare.clear();
    append_normalized(segment.text, spare);
    segment.text.swap(spare);
  }

 private:
  static void clean_ascii(Segment& segment) {
    std::string& text = segment.text;
    std::size_t size = 0;
    if (!text.empty() && (ascii_classes[static_cast<std::uint8_t>(text[0])] & control) != 0) segment.head = 0;
    for (const char c : text) {
      const std::uint16_t classes = ascii_classes[static_cast<std::uint8_t>(c)];
      if ((classes & control) != 0) continue;
      text[size++] = (classes & white_space) != 0 ? ' ' : c;
    }
    text.resize(size);
  }

  void append_normalized(std::string_view text, std::string& out) const {
    thread_local std::u32string codes;
    codes.clear();
    bool sorts = false;
    for (std::size_t at = 0; at < text.size();) sorts |= append_clean(next_code(text, at), codes);
    if (sorts) codes = unicode::normal_form(codes, unicode::Form::nfd, unicode::Version::hugging_face);
    for (const char32_t code : codes) {
      if (accents_ && code >= first_mark && (class_of(code) & mark) != 0) continue;
      if (lower_)
        append_lower(code, out);
      else
        unicode::append_utf8(out, code);
    }
  }

  // Appends a character to `out`. If clean_ is true, drops a control character and replaces white space by a space. If cjk_ is true, puts a
  // space on each side of a CJK character. If accents_ is true, appends the character's decomposition. Returns whether the normal form may
  // sort the character among others. Accents do not count, because all of them are dropped afterwards.
  bool append_clean(char32_t code, std::u32string& out) const {
    if (clean_) {
      const std::uint16_t classes = class_of(code);
      if (code == 0 || code == 0xFFFD || (classes & control) != 0) return false;
      if ((classes & white_space) != 0) code = U' ';
    }
    const bool apart = cjk_ && is_cjk(code);
    const bool changes = accents_ && code >= first_decomposed && unicode::may_change(code, unicode::Form::nfd);
    const std::u32string_view parts = changes ? unicode::decomposition(code) : std::u32string_view();
    if (apart) out += U' ';
    if (parts.empty())
      out += code;
    else
      out += parts;
    if (apart) out += U' ';
    return changes && parts.empty() && (class_of(code) & mark) == 0;
  }

  static constexpr char32_t first_decomposed = 0xC0, first_mark = 0x300;
  bool clean_, cjk_, lower_, accents_;
};

void add_precompiled(const Part& part, Steps& out) {
  std::string map;
  try {
    map = base64_decode(part.text("precompiled_charsmap"));
  } catch (const UserError&) {
    part.refuse("has a map that is not Base64: the file is damaged");
  }
  out.push_back(make_precompiled(map, part.origin()));
}

const std::vector<PartType<Steps>>& types() {
  static const std::vector<PartType<Steps>> list = {
      {"NFC", {}, add_step<normalize<unicode::Form::nfc>>},
      {"NFD", {}, add_step<normalize<unicode::Form::nfd>>},
      {"NFKC", {}, add_step<normalize<unicode::Form::nfkc>>},
      {"NFKD", {}, add_step<normalize<unicode::Form::nfkd>>},
      {"Lowercase", {}, add_step<lowercase>},
      {"StripAccents", {}, add_step<strip_accents>},
      {"Nmt", {}, add_step<clean_for_translation>},
      {"ByteLevel", {}, add_step<write_bytes>},
      {"Replace", {"pattern", "content"}, add_replace},
      {"Prepend", {"prepend"}, add_prepend},
      {"Strip", {"strip_left", "strip_right"}, add_strip},
      {"BertNormalizer", {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
       [](const Part& part, Steps& out) { out.emplace_back(Bert(part)); }},
      {"Precompiled", {"precompiled_charsmap"}, add_precompiled}};
  return list;
}

}  // namespace

Normalizer make_normalizer(const nlohmann::json& json, const std::string& origin) {
  Steps steps;
  if (!json.is_null()) read_part(json, "normalizer", "normalizers", types(), origin, steps);
  if (steps.size() == 1) return steps[0];
  return [steps](Segment& segment, std::string& spare) {
    for (const Normalizer& step : steps) step(segment, spare);
  };
}

}  // namespace tessera::json_tokenizer
