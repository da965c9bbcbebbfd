#include <gtest/gtest.h>

#include <latch>

#include "src/data/image/patches.h"
#include "tests/serving/tiny_model.h"

namespace tessera::serving {
namespace {

/// A model whose thread can be stopped, so that jobs wait.
class ModelThreadTest : public ::testing::Test {
 protected:
  ModelThreadTest() { limits_.max_batch = 8; }

  /// Starts the thread, and makes the thread wait for release().
  void hold() {
    thread_ = std::make_unique<ModelThread>(embedder_, limits_);
    thread_->on_batch = [this](std::int64_t items, bool images) { batches_.emplace_back(items, images); };
    held_ = std::async(std::launch::async, [this] {
      thread_->run([this] {
        begun_.count_down();
        released_.wait();
      });
    });
    begun_.wait();
  }
  void release() {
    released_.count_down();
    held_.get();
  }

  InferenceModel model_ = tiny_model();
  DualEncoderEmbedder embedder_{model_.model, model_.tokenizer};
  Batching limits_;
  std::unique_ptr<ModelThread> thread_;
  std::latch begun_{1}, released_{1};
  std::future<void> held_;
  std::vector<std::pair<std::int64_t, bool>> batches_;
};

TEST_F(ModelThreadTest, RequestsThatWaitAreJoinedAndGetTheirOwnRows) {
  hold();
  auto first = thread_->encode_texts({"red", "blue square"}, {});
  auto image = thread_->encode_images({at::full({3, 16, 16}, 7, at::kByte)}, {});
  auto other_needs = thread_->encode_texts({"red"}, {.input_ids = true});
  auto second = thread_->encode_texts({"circle"}, {});
  auto too_many = thread_->encode_texts(std::vector<std::string>(6, "dot"), {});
  release();
  const std::vector<std::string> texts = {"red", "blue square", "circle"};
  const at::Tensor expected = embedder_.encode_texts(texts, {}).global;
  EXPECT_TRUE(at::equal(first.get().global, expected.narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(second.get().global, expected.narrow(0, 2, 1)));
  EXPECT_EQ(image.get().global.size(0), 1);
  EXPECT_TRUE(other_needs.get().input.ids.defined());
  EXPECT_EQ(too_many.get().global.size(0), 6);
  thread_.reset();
  EXPECT_EQ(batches_, (std::vector<std::pair<std::int64_t, bool>>{{3, false}, {1, true}, {1, false}, {6, false}}));
}

TEST_F(ModelThreadTest, ARequestLargerThanABatchIsEncodedInParts) {
  hold();
  std::vector<at::Tensor> images;
  for (int i = 0; i < 19; ++i) images.push_back(at::full({3, 16, 16}, 10 * i, at::kByte));
  auto found = thread_->encode_images(images, {});
  release();
  const at::Tensor one = embedder_.encode_images(image_batch({images[18]}, embedder_.preprocessing()), ViewNeeds{}).global[0];
  EXPECT_TRUE(at::allclose(found.get().global[18], one, 0, 1e-6));
}

TEST_F(ModelThreadTest, AFullQueueRefusesWorkAndTakesWorkAgainLater) {
  limits_.max_queue = 4;
  hold();
  auto waiting = thread_->encode_texts({"a", "b", "c", "d", "e"}, {});  // more than fits, but nothing else waits
  EXPECT_EQ(thread_->waiting(), 5);
  EXPECT_THROW(thread_->encode_texts({"f"}, {}), Busy);
  release();
  EXPECT_EQ(waiting.get().global.size(0), 5);
  EXPECT_EQ(thread_->encode_texts({"f"}, {}).get().global.size(0), 1);
}

TEST_F(ModelThreadTest, AFailureReachesItsRequestAndTheThreadGoesOn) {
  hold();
  auto failing = thread_->encode_images({at::full({3, 15, 16}, 7, at::kByte)}, {});
  release();
  EXPECT_ANY_THROW(failing.get());
  EXPECT_THROW(thread_->run([] { throw std::runtime_error("own"); }), std::runtime_error);
  EXPECT_EQ(thread_->encode_texts({"a"}, {}).get().global.size(0), 1);
}

TEST_F(ModelThreadTest, ABatchWaitsForARequestThatIsBeingPrepared) {
  limits_.max_wait_ms = 60'000;
  hold();
  auto preparing = std::make_unique<ModelThread::Preparing>(*thread_);
  auto first = thread_->encode_texts({"a"}, {});
  release();
  auto second = thread_->encode_texts({"b"}, {});
  preparing.reset();
  first.get();
  second.get();
  thread_.reset();
  EXPECT_EQ(batches_, (std::vector<std::pair<std::int64_t, bool>>{{2, false}}));
}

TEST_F(ModelThreadTest, WorkThatWaitsIsFinishedAtTheEnd) {
  hold();
  auto found = thread_->encode_texts({"a"}, {});
  release();
  thread_.reset();
  EXPECT_EQ(found.get().global.size(0), 1);
}

}  // namespace
}  // namespace tessera::serving
