#include "src/data/tokenizers/text_stages.h"

#include <array>
#include <memory>

#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>

#include <tessera/base/error.h>

namespace tessera::stages {
namespace {

using icu::UnicodeString;
using Pieces = std::vector<UnicodeString>;
using Span = std::pair<std::int32_t, std::int32_t>;  // begin and end in UTF-16 units

/// A pattern in ICU's spelling: its \s is not all of Unicode's white space, the tokenizers library's is.
UnicodeString with_white_space(const std::string& pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    if (next == 's' || next == 'S')
      out += next == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    else
      (out += '\\') += next;
  }
  return UnicodeString::fromUTF8(out);
}

/// Finds a string or a regular expression.
class Finder {
 public:
  Finder(const nlohmann::json& pattern, const std::string& origin) {
    if (pattern.contains("String")) {
      text_ = UnicodeString::fromUTF8(pattern.at("String").get<std::string>());
      if (text_.isEmpty()) user_error(origin, ": a pattern is empty");
    } else if (pattern.contains("Regex")) {
      compile(pattern.at("Regex").get<std::string>(), origin);
    } else {
      user_error(origin, ": a pattern is ", pattern.dump(), ", but String and Regex are known here");
    }
  }
  Finder(const char* regex, const std::string& origin) { compile(regex, origin); }

  std::vector<Span> find(const UnicodeString& text) const {
    std::vector<Span> out;
    if (regex_ == nullptr) {
      for (std::int32_t at = text.indexOf(text_); at >= 0; at = text.indexOf(text_, at + text_.length()))
        out.emplace_back(at, at + text_.length());
      return out;
    }
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(regex_->matcher(text, status));
    while (U_SUCCESS(status) && matcher->find(status))
      if (matcher->end(status) > matcher->start(status)) out.emplace_back(matcher->start(status), matcher->end(status));
    return out;
  }

 private:
  void compile(const std::string& regex, const std::string& origin) {
    UErrorCode status = U_ZERO_ERROR;
    regex_.reset(icu::RegexPattern::compile(with_white_space(regex), 0, status));
    if (U_FAILURE(status)) user_error(origin, ": the regular expression ", regex, " is not understood here");
  }

  UnicodeString text_;
  std::shared_ptr<const icu::RegexPattern> regex_;
};

[[noreturn]] void unknown(const std::string& origin, const char* what, const std::string& type) {
  user_error(origin, ": its ", what, " ", type, " is not known here (docs/pretrained.md)");
}

std::string type_of(const nlohmann::json& json, const std::string& origin) {
  if (!json.is_object() || !json.contains("type") || !json.at("type").is_string())
    user_error(origin, ": a part has no type: the file is damaged");
  return json.at("type").get<std::string>();
}

/// Character by character, without regard to what stands beside it.
UnicodeString lower(const UnicodeString& text) {
  constexpr UChar32 kDottedI = 0x130;
  UnicodeString out;
  for (std::int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 code = text.char32At(i);
    if (code == kDottedI)
      out.append(static_cast<UChar32>('i')).append(static_cast<UChar32>(0x307));
    else
      out.append(u_tolower(code));
  }
  return out;
}

Normalizer canonical_form(const std::string& type) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = type == "NFC"   ? icu::Normalizer2::getNFCInstance(status)
                                 : type == "NFD" ? icu::Normalizer2::getNFDInstance(status)
                                 : type == "NFKC" ? icu::Normalizer2::getNFKCInstance(status)
                                                  : icu::Normalizer2::getNFKDInstance(status);
  return [form](const UnicodeString& text) {
    UErrorCode failed = U_ZERO_ERROR;
    return form->normalize(text, failed);
  };
}

Normalizer replacing(const Finder& finder, const UnicodeString& content) {
  return [finder, content](const UnicodeString& text) {
    UnicodeString out;
    std::int32_t behind = 0;
    for (const auto& [begin, end] : finder.find(text)) {
      out.append(text, behind, begin - behind).append(content);
      behind = end;
    }
    return out.append(text, behind, text.length() - behind);
  };
}

/// The spans of a text that `found` names and those between them, as a Split's behavior joins them.
std::vector<Span> joined_spans(const std::vector<Span>& found, std::int32_t length, const std::string& behavior, bool invert) {
  struct Part {
    Span span;
    bool match;
  };
  std::vector<Part> parts;
  std::int32_t behind = 0;
  for (const Span& span : found) {
    if (span.first > behind) parts.push_back({{behind, span.first}, invert});
    parts.push_back({span, !invert});
    behind = span.second;
  }
  if (behind < length) parts.push_back({{behind, length}, invert});
  std::vector<Span> out;
  bool before = false;  // whether the part before is a match
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [span, match] = parts[i];
    const bool joins = !out.empty() && ((behavior == "MergedWithPrevious" && match && !before) ||
                                        (behavior == "MergedWithNext" && before && !match) ||
                                        (behavior == "Contiguous" && match == before));
    if (joins)
      out.back().second = span.second;
    else if (!(behavior == "Removed" && match))
      out.push_back(span);
    before = match;
  }
  return out;
}

PreTokenizer splitting(const Finder& finder, const std::string& behavior, bool invert) {
  return [finder, behavior, invert](const UnicodeString& text) {
    Pieces out;
    for (const auto& [begin, end] : joined_spans(finder.find(text), text.length(), behavior, invert))
      out.push_back(UnicodeString(text, begin, end - begin));
    return out;
  };
}

UnicodeString bytes_as_characters(const UnicodeString& text) {
  std::string bytes;
  text.toUTF8String(bytes);
  UnicodeString out;
  for (const char byte : bytes) out.append(static_cast<UChar32>(character_of_byte(static_cast<unsigned char>(byte))));
  return out;
}

PreTokenizer byte_level(const nlohmann::json& json, const std::string& origin) {
  const bool prefix = json.value("add_prefix_space", true), regex = json.value("use_regex", true);
  const Finder words("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", origin);
  const PreTokenizer split = splitting(words, "Isolated", false);
  return [prefix, regex, split](const UnicodeString& given) {
    const UnicodeString text = prefix && !given.startsWith(u" ") ? u" " + given : given;
    Pieces out = regex ? split(text) : Pieces{text};
    for (UnicodeString& piece : out) piece = bytes_as_characters(piece);
    return out;
  };
}

PreTokenizer sequence(const std::vector<PreTokenizer>& parts) {
  return [parts](const UnicodeString& text) {
    Pieces pieces = {text};
    for (const PreTokenizer& part : parts) {
      Pieces next;
      for (const UnicodeString& piece : pieces)
        for (UnicodeString& smaller : part(piece))
          if (!smaller.isEmpty()) next.push_back(std::move(smaller));
      pieces = std::move(next);
    }
    return pieces;
  };
}

}  // namespace

char32_t character_of_byte(unsigned char byte) {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> out{};
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      out[b] = printable ? static_cast<char32_t>(b) : next++;
    }
    return out;
  }();
  return table[byte];
}

Normalizer make_normalizer(const nlohmann::json& json, const std::string& origin) {
  if (json.is_null()) return [](const UnicodeString& text) { return text; };
  const std::string type = type_of(json, origin);
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") return canonical_form(type);
  if (type == "Lowercase") return lower;
  if (type == "Replace")
    return replacing(Finder(json.at("pattern"), origin), UnicodeString::fromUTF8(json.at("content").get<std::string>()));
  if (type == "Prepend") {
    const UnicodeString head = UnicodeString::fromUTF8(json.at("prepend").get<std::string>());
    return [head](const UnicodeString& text) { return text.isEmpty() ? text : head + text; };
  }
  if (type != "Sequence") unknown(origin, "normalizer", type);
  std::vector<Normalizer> parts;
  for (const nlohmann::json& part : json.at("normalizers")) parts.push_back(make_normalizer(part, origin));
  return [parts](UnicodeString text) {
    for (const Normalizer& part : parts) text = part(text);
    return text;
  };
}

PreTokenizer make_pre_tokenizer(const nlohmann::json& json, const std::string& origin) {
  if (json.is_null()) return [](const UnicodeString& text) { return Pieces{text}; };
  const std::string type = type_of(json, origin);
  if (type == "Split")
    return splitting(Finder(json.at("pattern"), origin), json.at("behavior").get<std::string>(), json.value("invert", false));
  if (type == "ByteLevel") return byte_level(json, origin);
  if (type == "WhitespaceSplit") return splitting(Finder("\\s+", origin), "Removed", false);
  if (type != "Sequence") unknown(origin, "pre_tokenizer", type);
  std::vector<PreTokenizer> parts;
  for (const nlohmann::json& part : json.at("pretokenizers")) parts.push_back(make_pre_tokenizer(part, origin));
  return sequence(parts);
}

}  // namespace tessera::stages
