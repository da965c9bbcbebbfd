#include <set>

#include <gtest/gtest.h>

#include "src/report/class_colors.h"

namespace tessera::report {
namespace {

TEST(ClassColors, ClassNamedAfterAColorHasIt) {
  const std::vector<Color> colors = class_colors({"blue", "Red circle", "background", "a reddish thing"});
  EXPECT_GT(colors[0][2], colors[0][0]);
  EXPECT_EQ(colors[1], *color_in("red"));
  EXPECT_EQ(color_in("background"), std::nullopt);
  EXPECT_EQ(color_in("a reddish thing"), std::nullopt) << "only whole words count";
}

TEST(ClassColors, ClassesOfOneColorHaveDifferentShades) {
  const std::vector<Color> colors = class_colors({"red circle", "red square", "red star"});
  EXPECT_EQ(std::set<Color>(colors.begin(), colors.end()).size(), 3u);
  for (const Color& color : colors) EXPECT_GT(color[0], color[1]);
}

TEST(ClassColors, OtherClassesTakeUnusedColors) {
  const std::vector<Color> colors = class_colors({"cat", "orange", "dog"});
  EXPECT_EQ(colors[0], palette_color(0));
  EXPECT_EQ(colors[2], palette_color(2)) << "the second color of the palette is an orange";
}

}  // namespace
}  // namespace tessera::report
