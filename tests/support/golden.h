#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/compare.h"
#include "tests/support/test_data.h"

/// Helpers that run every reference case of tests/data/golden/SYSTEM as a separate test, with the code of tessera-probe:
///
///   class GoldenSparc : public testing::TestWithParam<std::string> {};
///   TEST_P(GoldenSparc, Agrees) { expect_case_agrees(GetParam(), probe::core_runners()); }
///   INSTANTIATE_TEST_SUITE_P(Cases, GoldenSparc, testing::ValuesIn(golden_cases("sparc")), golden_name);
namespace tessera {

/// Returns the paths of the cases in tests/data/golden/`system` whose file names begin with `prefix`. Throws if there are none, because a
/// suite without cases would pass silently.
inline std::vector<std::string> golden_cases(const std::string& system, const std::string& prefix = "") {
  std::vector<std::string> paths;
  for (const std::string& path : probe::case_files(test_data("golden/" + system)))
    if (std::filesystem::path(path).filename().string().starts_with(prefix)) paths.push_back(path);
  if (paths.empty()) throw std::runtime_error("tests/data/golden/" + system + " holds no case named " + prefix + "*");
  return paths;
}

/// Returns, in one list, golden_cases(system, prefix) for each system in `systems` and each of the system's prefixes.
inline std::vector<std::string> golden_cases_of(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& systems) {
  std::vector<std::string> paths;
  for (const auto& [system, prefixes] : systems)
    for (const std::string& prefix : prefixes)
      for (const std::string& path : golden_cases(system, prefix)) paths.push_back(path);
  return paths;
}

inline std::string golden_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

inline void expect_case_agrees(const std::string& path, const probe::Runners& runners) {
  const probe::CaseReport report = probe::run_file(path, runners);
  EXPECT_TRUE(report.agrees()) << probe::format_table(report, /*brief=*/true);
}

}  // namespace tessera
