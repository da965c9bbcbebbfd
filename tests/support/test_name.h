#pragma once

#include <cctype>
#include <string>

#include <gtest/gtest.h>

namespace tessera {

/// Names a test after its parameter as gtest prints it (PrintTo): keeps letters and digits, and puts one _ for anything between them.
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
