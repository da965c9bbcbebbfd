#include <gtest/gtest.h>

#include "src/evaluation/progress.h"

namespace tessera {
namespace {

/// Holds a clock that the test sets, and the lines that were written.
struct Desk {
  double now = 100;
  std::vector<std::string> written;

  Progress::Output output(bool terminal) {
    return {terminal, [this](const std::string& text) { written.push_back(text); }, [this] { return now; }};
  }
};

TEST(EvaluationProgress, ShowsProgressSpeedAndTimeLeft) {
  const std::string line = progress_line("zero_shot", 12000, 50000, 30);
  EXPECT_EQ(line.find("zero_shot  12,000/50,000 images  400 images/s  ETA "), 0U) << line;
  EXPECT_NE(line, progress_line("zero_shot", 12000, 50000, 60)) << "the time left depends on the time taken so far";
}

TEST(EvaluationProgress, UpdatesAndClearsOneLineOnATerminal) {
  Desk desk;
  {
    Progress progress("knn", desk.output(true));
    progress.show(1, 10);  // too early
    desk.now += 1;
    progress.show(2, 10);
    progress.show(3, 10);  // too soon after the last update
    desk.now += 1;
    progress.show(4, 10);
  }
  EXPECT_EQ(desk.written, (std::vector<std::string>{"\r\033[K" + progress_line("knn", 2, 10, 1),
                                                    "\r\033[K" + progress_line("knn", 4, 10, 2), "\r\033[K"}));
}

TEST(EvaluationProgress, PrintsALineEveryHalfMinuteElsewhere) {
  Desk desk;
  {
    Progress progress("knn", desk.output(false));
    for (int second = 1; second <= 70; ++second) {
      desk.now += 1;
      progress.show(second, 100);
    }
  }
  EXPECT_EQ(desk.written,
            (std::vector<std::string>{progress_line("knn", 30, 100, 30), progress_line("knn", 60, 100, 60)}));
}

}  // namespace
}  // namespace tessera
