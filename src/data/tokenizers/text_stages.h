#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <unicode/unistr.h>

namespace tessera::stages {

/// The steps that a tokenizer.json asks for before its model. Thread-safe.
using Normalizer = std::function<icu::UnicodeString(const icu::UnicodeString&)>;
using PreTokenizer = std::function<std::vector<icu::UnicodeString>(const icu::UnicodeString&)>;

/// Throws UserError naming `origin` and the type, for those that are not known here.
Normalizer make_normalizer(const nlohmann::json& json, const std::string& origin);
PreTokenizer make_pre_tokenizer(const nlohmann::json& json, const std::string& origin);

/// The character that GPT-2's byte-level tokenizers write for a byte.
char32_t character_of_byte(unsigned char byte);

}  // namespace tessera::stages
