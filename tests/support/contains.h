#pragma once

#include <string>

#include <gtest/gtest.h>

namespace tessera {

/// Returns whether the text contains `part`, with a message that shows both.
inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  return testing::AssertionResult(found) << "\"" << part << "\" is " << (found ? "" : "not ") << "in:\n" << text;
}

}  // namespace tessera
