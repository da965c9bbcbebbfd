#pragma once

#include <cctype>
#include <string>

#include <gtest/gtest.h>

namespace tessera {

/// Returns a test name made from the parameter's text as gtest prints it (PrintTo). Letters and digits stay, and anything between them
/// becomes one underscore.
template <class Param>
std::string test_name(const testing::TestParamInfo<Param>& info) {
  std::string name;
  bool gap = false;
  for (const char c : testing::PrintToString(info.param)) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      gap = !name.empty();
      continue;
    }
    if (gap) name += '_';
    name += c;
    gap = false;
  }
  return name;
}

}  // namespace tessera
