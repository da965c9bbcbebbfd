#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/base/text.h>

namespace tessera {

/// Returns the data that a page holds.
inline nlohmann::json page_data(const std::string& page) {
  constexpr std::string_view kStart = "id=\"data\">";
  const std::size_t start = page.find(kStart) + kStart.size();
  return nlohmann::json::parse(page.substr(start, page.find("</script>", start) - start));
}

/// Expects a page that loads nothing from elsewhere.
inline void expect_self_contained(const std::string& page) {
  for (const char* outside : {" src=\"", "<link", "url(", "@import", "import("}) EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_NE(page.find("Dygraph"), std::string::npos) << "the plotting library is inline";
}

}  // namespace tessera
