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

/// A normalizer that handles characters one by one.
template <class Step>
class EachCharacter : public Normalizer {
 public:
  explicit EachCharacter(Step step = {}) : step_(step) {}

  void apply(Segment& segment, std::string& spare) const override {
    if (unicode::is_ascii(segment.text) && step_.keeps_ascii()) return;
    rewrite(segment, spare, step_);
  }

 private:
  Step step_;
};

struct StripAccents {
  static bool keeps_ascii() { return true; }
  void operator()(char32_t code, std::string& out) const {
    if ((class_of(code) & combining) == 0) unicode::append_utf8(out, code);
  }
};

// Removes or replaces control characters and rare white space, as translation models do.
struct Nmt {
  static bool keeps_ascii() { return false; }
  void operator()(char32_t c, std::string& out) const {
    const bool removed = (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    if (removed) return;
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                       c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    unicode::append_utf8(out, space ? U' ' : c);
  }
};

void append_lower(char32_t code, std::string& out) {
  if (code < 0x80)
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code | 0x20 : code);
  else if (code == capital_dotted_i)
    out += "i\u0307";
  else
    unicode::append_utf8(out, lower_of(code));
}

class Lowercase : public Normalizer {
 public:
  void apply(Segment& segment, std::string& spare) const override {
    if (unicode::is_ascii(segment.text)) return lower_ascii(segment.text);
    rewrite(segment, spare, append_lower);
  }
};

class NormalForm : public Normalizer {
 public:
  explicit NormalForm(unicode::Form form) : form_(form) {}
  void apply(Segment& segment, std::string&) const override {
    if (!changes(segment.text)) return;
    const std::size_t head = segment.head == 0 ? 0 : normal(std::string_view(segment.text).substr(0, segment.head)).size();
    segment.text = normal(segment.text);
    if (segment.head > 0) segment.head = segment.text.empty() ? 0 : std::max(head, length_of(segment.text[0]));
  }

 private:
  std::string normal(std::string_view text) const { return unicode::encode(unicode::normal_form(unicode::decode(text), form_, unicode::Version::hugging_face)); }

  bool changes(std::string_view text) const {
    if (unicode::is_ascii(text)) return false;
    for (std::size_t at = 0; at < text.size();)
      if (unicode::may_change(next_code(text, at), form_)) return true;
    return false;
  }
  unicode::Form form_;
};

class Replace : public Normalizer {
 public:
  Replace(const Part& part) : pattern_(make_pattern(part.at("pattern"), part.origin())), content_(part.text("content")) {}

  void apply(Segment& segment, std::string& spare) const override {
    thread_local std::vector<Span> found;
    found.clear();
    pattern_->find(segment.text, found);
    if (found.empty()) return;
    spare.clear();
    std::size_t behind = 0, head = 0;
    for (const Span& span : found) {
      append_kept(segment, behind, span.begin, head, spare);
      spare += content_;
      if (segment.head > 0 && span.end <= segment.head) head = spare.size();
      behind = span.end;
    }
    append_kept(segment, behind, segment.text.size(), head, spare);
    segment.text.swap(spare);
    segment.head = head;
  }

  static void append_kept(const Segment& segment, std::size_t begin, std::size_t end, std::size_t& head, std::string& out) {
    if (begin < segment.head) head = out.size() + std::min(end, segment.head) - begin;
    out.append(segment.text, begin, end - begin);
  }

 private:
  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string head) : head_(std::move(head)) {}
  void apply(Segment& segment, std::string&) const override {
    if (segment.text.empty()) return;
    segment.text.insert(0, head_);
    if (segment.head > 0) segment.head += head_.size();
  }

 private:
  std::string head_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(Segment& segment, std::string&) const override {
    std::string& text = segment.text;
    const std::size_t begin = left_ ? end_of_row(text, 0, white_space) : 0;
    std::size_t end = text.size();
    while (right_ && end > begin) {
      const std::size_t last = before(text, end);
      if ((class_of(code_at(text, last)) & white_space) == 0) break;
      end = last;
    }
    text.resize(end);
    text.erase(0, begin);
    segment.head = std::min(segment.head - std::min(segment.head, begin), text.size());
  }

 private:
  bool left_, right_;
};

class ByteLevel : public Normalizer {
 public:
  void apply(Segment& segment, std::string& spare) const override {
    spare.clear();
    append_byte_characters(std::string_view(segment.text).substr(0, segment.head), spare);
    const std::size_t head = spare.size();
    append_byte_characters(std::string_view(segment.text).substr(segment.head), spare);
    segment.text.swap(spare);
    segment.head = head;
  }
};

bool is_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class Bert : public Normalizer {
 public:
  Bert(const Part& part)
      : clean_(part.flag("clean_text", true)),
        cjk_(part.flag("handle_chinese_chars", true)),
        lower_(part.flag("lowercase", true)),
        accents_(part.flag("strip_accents", lower_)) {}

  void apply(Segment& segment, std::string& spare) const override {
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

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::shared_ptr<const Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(Segment& segment, std::string& spare) const override {
    for (const auto& part : parts_) part->apply(segment, spare);
  }

 private:
  std::vector<std::shared_ptr<const Normalizer>> parts_;
};

/// Makes a normalizer of a type that has settings. Returns null for other types.
std::shared_ptr<const Normalizer> with_settings(const Part& part) {
  const std::string& type = part.type();
  if (type == "Replace") {
    part.allow({"pattern", "content"});
    return std::make_shared<Replace>(part);
  }
  if (type == "Prepend") {
    part.allow({"prepend"});
    return std::make_shared<Prepend>(part.text("prepend"));
  }
  if (type == "Strip") {
    part.allow({"strip_left", "strip_right"});
    return std::make_shared<Strip>(part.flag("strip_left", true), part.flag("strip_right", true));
  }
  if (type == "BertNormalizer") {
    part.allow({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    return std::make_shared<Bert>(part);
  }
  if (type == "Precompiled") {
    part.allow({"precompiled_charsmap"});
    std::string map;
    try {
      map = base64_decode(part.text("precompiled_charsmap"));
    } catch (const UserError&) {
      part.refuse("has a map that is not Base64: the file is damaged");
    }
    return make_precompiled(map, part.origin());
  }
  return nullptr;
}

std::shared_ptr<const Normalizer> without_settings(const Part& part) {
  const std::string& type = part.type();
  part.allow({});
  if (type == "NFC") return std::make_shared<NormalForm>(unicode::Form::nfc);
  if (type == "NFD") return std::make_shared<NormalForm>(unicode::Form::nfd);
  if (type == "NFKC") return std::make_shared<NormalForm>(unicode::Form::nfkc);
  if (type == "NFKD") return std::make_shared<NormalForm>(unicode::Form::nfkd);
  if (type == "Lowercase") return std::make_shared<Lowercase>();
  if (type == "StripAccents") return std::make_shared<EachCharacter<StripAccents>>();
  if (type == "Nmt") return std::make_shared<EachCharacter<Nmt>>();
  if (type == "ByteLevel") return std::make_shared<ByteLevel>();
  part.unknown();
}

bool is_without_settings(const std::string& type) {
  for (const char* known : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"})
    if (type == known) return true;
  return false;
}

void add_parts(const nlohmann::json& json, const std::string& origin, int depth, std::vector<std::shared_ptr<const Normalizer>>& out) {
  constexpr int deepest = 16;
  const Part part(json, "normalizer", origin);
  if (part.type() == "Sequence") {
    part.allow({"normalizers"});
    if (depth == deepest) part.refuse("is nested too deeply");
    for (const nlohmann::json& each : part.at("normalizers")) add_parts(each, origin, depth + 1, out);
  } else if (is_without_settings(part.type())) {
    out.push_back(without_settings(part));
  } else if (auto made = with_settings(part)) {
    out.push_back(std::move(made));
  } else {
    part.unknown();
  }
}

}  // namespace

std::shared_ptr<const Normalizer> make_normalizer(const nlohmann::json& json, const std::string& origin) {
  std::vector<std::shared_ptr<const Normalizer>> parts;
  if (!json.is_null()) add_parts(json, origin, 0, parts);
  return parts.size() == 1 ? parts[0] : std::make_shared<Sequence>(parts);
}

}  // namespace tessera::json_tokenizer
