#include <gtest/gtest.h>

#include "src/base/progress.h"

namespace tessera {
namespace {

/// Holds a clock that the test sets, and the lines that the progress display wrote.
struct Desk {
  double now = 100;
  std::vector<std::string> written;

  Progress::Output output(bool terminal) {
    return {terminal, [this](const std::string& text) { written.push_back(text); }, [this] { return now; }};
  }
};

TEST(Progress, ShowsProgressSpeedAndTimeLeft) {
  const std::string line = progress_line("zero_shot", "images", 12000, 50000, 0, 30);
  EXPECT_EQ(line.find("zero_shot  12,000/50,000 images  400 images/s  ETA "), 0U) << line;
  EXPECT_NE(line, progress_line("zero_shot", "images", 12000, 50000, 0, 60)) << "the time left depends on the time taken so far";
  EXPECT_NE(progress_line("pack", "samples", 12000, 50000, 9000, 30).find("  100 samples/s  "), std::string::npos)
      << "what an earlier call had done does not count for the speed";
}

TEST(Progress, UpdatesAndClearsOneLineOnATerminal) {
  Desk desk;
  {
    Progress progress("knn", "images", desk.output(true));
    progress.show(1, 10);  // too early
    desk.now += 1;
    progress.show(2, 10);
    progress.show(3, 10);  // too soon after the last update
    desk.now += 1;
    progress.show(4, 10);
  }
  EXPECT_EQ(desk.written, (std::vector<std::string>{"\r\033[K" + progress_line("knn", "images", 2, 10, 0, 1),
                                                    "\r\033[K" + progress_line("knn", "images", 4, 10, 0, 2), "\r\033[K"}));
}

TEST(Progress, PrintsALineEveryHalfMinuteElsewhere) {
  Desk desk;
  {
    Progress progress("knn", "images", desk.output(false));
    for (int second = 1; second <= 70; ++second) {
      desk.now += 1;
      progress.show(second, 100);
    }
  }
  EXPECT_EQ(desk.written,
            (std::vector<std::string>{progress_line("knn", "images", 30, 100, 0, 30), progress_line("knn", "images", 60, 100, 0, 60)}));
}

}  // namespace
}  // namespace tessera
