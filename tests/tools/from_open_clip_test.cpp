#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/config/node.h>

namespace tessera {
namespace {

/// A fixture with a folder for each test. Runs `trainer --from-open-clip` on a params.txt in that folder.
class FromOpenClip : public FolderTest {
 protected:
  std::string converting(const std::string& parameters) const {
    return "trainer --from-open-clip " + write("params.txt", parameters);
  }
  /// Converts these parameters and returns the printed YAML as a tree. Fails the test if the program fails.
  config::Node tree(const std::string& parameters) {
    text_ = output_of(converting(parameters));
    return config::parse_yaml(text_, "run.yaml");
  }
  /// Returns the value at a path such as "a.b.c" as JSON, or "nothing" if it is missing.
  static std::string at(const config::Node& tree, const std::string& key) {
    const config::Node* node = &tree;
    for (std::size_t begin = 0; node != nullptr && begin <= key.size();) {
      const std::size_t end = std::min(key.find('.', begin), key.size());
      node = node->find(key.substr(begin, end - begin));
      begin = end + 1;
    }
    return node == nullptr ? "nothing" : config::to_json(*node).dump();
  }
  void expect(const config::Node& tree, const std::string& key, const std::string& json) const {
    EXPECT_EQ(at(tree, key), config::to_json(config::parse_yaml(json, "expected")).dump()) << key << "\n" << text_;
  }

  std::string text_;
};

TEST(OpenClipFlags, AreAnsweredWithTheMatchingSettings) {
  const std::string text = refusal_of("trainer --train-data 'cc/{00..09}.tar' --lr 1e-3 --precision amp_bf16 --pretrained laion2b_s34b_b79k --siglip");
  for (const char* line : {
           "  --train-data 'cc/{00..09}.tar'  ->  --set 'data.train={name: webdataset, path: \"cc/{00..09}.tar\", caption_keys: [txt], json_captions: []}'\n",
           "\n  --lr 1e-3  ->  --set optimizer.lr=1e-3\n",
           "\n  --precision amp_bf16  ->  --set training.precision=bf16\n",
           "\n  --pretrained laion2b_s34b_b79k  ->  start.weights: OpenCLIP's file, unchanged (For a tag, download its file first",
           "\n  --siglip  ->  --set objective=siglip objective.init_logit_bias=0\n",
           "\n--from-open-clip params.txt prints the YAML of a whole run",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find("no such option"), std::string::npos) << text;
}

TEST(OpenClipFlags, TakeTheSameNumberOfWordsAsInOpenClipAndUnknownOptionsStayErrors) {
  const Answer several = answer_of("trainer --config shapes_sparc --image-mean 0.5 0.5 0.5 --batch-size=32 --accum-freq 4 --csv-separator , --aug-cfg 'scale=(0.4, 1.0)' use_timm=True");
  for (const char* line : {"  --image-mean 0.5 0.5 0.5  ->  --set 'model.preprocessing.mean=[0.5, 0.5, 0.5]'\n", "  --batch-size 32  ->  --set data.loader.batch_size=128\n",
                           "  --accum-freq 4  ->  --set data.loader.batch_size=128 training.micro_batch=32 (", "  --csv-separator ,  ->  --set data.train.separator=comma\n",
                           "->  --set 'data.loader.augmentation.scale=[0.4,1.0]'\n"})
    EXPECT_NE(several.text.find(line), std::string::npos) << line << "\n" << several.text;
  const Answer mixed = answer_of("trainer --lr 1e-3 --nonsense");
  EXPECT_NE(mixed.text.find("\n--nonsense: there is no such option"), std::string::npos) << mixed.text;
  EXPECT_NE(answer_of("trainer --nprocs 2").text.find("did you mean --nproc?"), std::string::npos);
  EXPECT_NE(answer_of("trainer --epochs many").text.find("epochs is many: expected a number"), std::string::npos);
}

TEST_F(FromOpenClip, ConvertsARunOnShardsToAValidConfiguration) {
  const config::Node run = tree(
      "name: 2024-b\nmodel: ViT-S-32-alt\nforce_image_size: 64\ntrain_data: a/{00..07}.tar::b/x.tar\ndataset_type: webdataset\ntrain_num_samples: 1000\n"
      "batch_size: 8\naccum_freq: 2\nworkers: 3\nworld_size: 2\nepochs: 5\nwarmup: 40\nlr: 0.002\nbeta1: 0.9\nbeta2: 0.98\neps: 1e-06\nwd: 0.1\n"
      "precision: amp_bf16\ngrad_clip_norm: 1.0\nsave_frequency: 2\nseed: 3\nlog_every_n_steps: 20\nreport_to: tensorboard,wandb\nwandb_project_name: my project\n"
      "aug_cfg: {'scale': (0.4, 1.0), 'use_timm': True, 'color_jitter': 0.4, 're_prob': 0.1}\ngrad_checkpointing: True\nhorovod: False\nlog_path: x\ndebug: True\nunheard_of: 7\n");
  expect(run, "run.name", "\"2024-b\"");
  expect(run, "data.train.path", "[\"a/{00..07}.tar\", b/x.tar]");
  expect(run, "data.loader.batch_size", "16");
  expect(run, "training.micro_batch", "8");
  // 1000 samples make 63 batches of 8 x 2 samples, 21 for each of 3 workers. With 2 batches per update, an epoch has 31 updates.
  expect(run, "training.steps", "155");
  expect(run, "checkpoint.every_steps", "62");
  expect(run, "optimizer", "{name: adamw, lr: 0.002, betas: [0.9, 0.98], eps: 1e-06, weight_decay: 0.1, no_decay: [bn, ln, bias, logit_scale]}");
  expect(run, "schedule", "{warmup_steps: 40, schedule: cosine}");
  expect(run, "training.precision", "bf16");
  expect(run, "training.clip_norm", "1.0");
  expect(run, "log", "{every_steps: 20, tensorboard: true, command: \"python3 " TESSERA_SOURCE_DIR "/scripts/log_to_wandb.py 'my project'\"}");
  expect(run, "data.loader.augmentation", "{scale: [0.4, 1.0], color_jitter: {probability: 1.0, brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0}}");
  expect(run, "model.preprocessing.image_size", "64");
  expect(run, "model.image.encoder", "{name: vit, patch_size: 32, width: 384, heads: 6, grad_checkpointing: true}");
  expect(run, "model.text.encoder", "{name: text_transformer, width: 256, layers: 10, heads: 4, grad_checkpointing: true}");
  for (const char* remark : {"# It had 2 processes: start this one with --nproc 2", "# - --aug-cfg {'scale': ", "# - --debug: no counterpart.", "# - unheard_of: 7: open_clip_train 3.3.0 has no such parameter"})
    EXPECT_NE(text_.find(remark), std::string::npos) << remark << "\n" << text_;
  const std::string dry = output_of("trainer --config " + write("run.yaml", text_) + " --dry-run");
  EXPECT_NE(dry.find("steps             155\n"), std::string::npos) << dry;
}

TEST_F(FromOpenClip, CountsTheRowsOfATableAndWritesItsSettings) {
  write("pairs.csv", "img,text\na.jpg,one\nb.jpg,two\nc.jpg,three\nd.jpg,four\ne.jpg,five\n");
  for (const char* name : {"a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"}) write(name, "not looked at");
  const config::Node run = tree("model: RN50\ntrain_data: " + path("pairs.csv") + "\ncsv_separator: ,\ncsv_img_key: img\ncsv_caption_key: text\nbatch_size: 2\nepochs: 10\nwarmup: 0\n"
                                "lr_scheduler: const-cooldown\nepochs_cooldown: 4\nlr_cooldown_end: 1e-05\nlr_cooldown_power: 2.0\nval_data: " + path("pairs.csv") + "\nval_frequency: 3\n");
  expect(run, "data.train", "{name: csv, path: " + path("pairs.csv") + ", separator: comma, image_keys: [img], caption_keys: [text]}");
  expect(run, "data.validation", at(run, "data.train"));
  expect(run, "training.steps", "20");  // five rows in batches of two make two steps per epoch
  expect(run, "schedule", "{warmup_steps: 0, cooldown_share: 0.4, schedule: constant, min_lr: 1e-05, cooldown_power: 2.0}");
  expect(run, "evaluation.every_steps", "6");
  expect(run, "evaluation.tasks", "[{name: retrieval}, {name: validation_loss}]");
  expect(run, "optimizer.betas", "[0.9, 0.999]");  // OpenCLIP's default for models that are not ViTs
  expect(run, "optimizer.eps", "1e-8");
  const config::Node missing = tree("train_data: nowhere.csv\nepochs: 7\nmodel: ViT-B-32\n");
  expect(missing, "training", "{epochs: 7, tf32: true, precision: fp16}");
  EXPECT_NE(text_.find("# - --train-data: the table cannot be read here"), std::string::npos) << text_;
}

TEST_F(FromOpenClip, UpsamplingFactorsBecomeAMixtureAndValidationKeepsItsOwnSource) {
  const config::Node run = tree("model: coca_ViT-B-32\ntrain_data: a.tar::b/{0..3}.tar\ntrain_data_upsampling_factors: 1::2.5\ndataset_resampled: True\nval_data: v.csv\ncsv_separator: ,\n"
                                "world_size: 2\ngrad_clip_norm: 1.0\nimagenet_val: /data/val\n");
  const auto part = [](const char* label, const char* weight, const char* path) {
    return concat("{label: ", label, ", weight: ", weight, ", source: {name: webdataset, path: ", path, ", caption_keys: [txt], json_captions: []}}");
  };
  expect(run, "data.train", "{name: mixture, mode: weighted, sources: [" + part("part_1", "1", "a.tar") + ", " + part("part_2", "2.5", "\"b/{0..3}.tar\"") + "]}");
  expect(run, "data.validation", "{name: csv, path: v.csv, separator: comma, image_keys: [filepath], caption_keys: [title]}");
  EXPECT_EQ(run.find("objective")->find("objectives")->items().size(), 2u);
  EXPECT_EQ(run.find("evaluation")->find("tasks")->items().size(), 3u);
  for (const char* remark : {"# - CoCa: ", "# - --dataset-resampled: no counterpart", "# - --gather-with-grad: nothing to set"})
    EXPECT_NE(text_.find(remark), std::string::npos) << remark << "\n" << text_;
  output_of("trainer --config " + write("run.yaml", text_) + " --print-config");
}

TEST_F(FromOpenClip, AWarmUpLongerThanTheRunIsCutAtTheSameLearningRate) {
  const config::Node run = tree("model: ViT-B-32\ntrain_data: a.tar\ntrain_num_samples: 640\nbatch_size: 64\nworkers: 1\nepochs: 5\nwarmup: 200\nlr: 0.001\n");
  expect(run, "schedule.warmup_steps", "50");
  expect(run, "optimizer.lr", "0.00025");
}

TEST_F(FromOpenClip, OptimizersOfTimmKeepTheirOwnDefaults) {
  const auto optimizer = [&](const std::string& parameters) {
    return tree("model: ViT-B-32\ntrain_data: a.tar\ntrain_num_samples: 640\nbatch_size: 64\nepochs: 5\nwarmup: 0\nlr: 0.001\nwd: 0.2\n" + parameters);
  };
  // timm's Lion has 0.99 as its second beta and no eps, and decays all weights; OpenCLIP's own AdamW has other defaults for a ViT.
  expect(optimizer("opt: timm/lion\n"), "optimizer", "{name: lion, lr: 0.001, betas: [0.9, 0.99], weight_decay: 0.2}");
  expect(optimizer("opt: timm/lion\nbeta1: 0.95\nbeta2: 0.98\neps: 1e-06\n"), "optimizer",
         "{name: lion, lr: 0.001, betas: [0.95, 0.98], weight_decay: 0.2}");
  expect(optimizer("opt: timm/lamb\n"), "optimizer", "{name: lamb, lr: 0.001, betas: [0.9, 0.999], weight_decay: 0.2}");
  expect(optimizer("opt: timm/lamb\neps: 1e-05\n"), "optimizer.eps", "1e-05");
  expect(optimizer("opt: timm/adamw\n"), "optimizer", "{name: adamw, lr: 0.001, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.2}");
  expect(optimizer("opt: timm/sgd\nmomentum: 0.8\n"), "optimizer", "{name: sgd, nesterov: true, lr: 0.001, momentum: 0.8, weight_decay: 0.2}");
  expect(optimizer("opt: timm/momentum\n"), "optimizer", "{name: sgd, lr: 0.001, weight_decay: 0.2}");
  expect(optimizer("opt: timm/adopt\n"), "optimizer.name", "adamw");
  EXPECT_NE(text_.find("# - --opt timm/adopt: timm's other optimizers have no counterpart; adamw replaces them."), std::string::npos) << text_;
}

TEST_F(FromOpenClip, LockedGroupsBecomeFrozenParametersByName) {
  const config::Node run = tree("model: ViT-S-32-alt\nlock_image: True\nlock_image_unlocked_groups: 2\nlock_text: True\nlock_text_unlocked_layers: 11\n");
  std::string image = "visual.conv1.*, visual.*_embedding, visual.ln_pre.*";
  for (int i = 0; i < 11; ++i) image += concat(", visual.transformer.resblocks.", i, ".*");
  expect(run, "parameters.frozen", "[" + image + ", token_embedding.*, positional_embedding]");
  const config::Node whole = tree("model: convnext_base\nlock_image: True\nlock_image_unlocked_groups: 1\n");
  expect(whole, "parameters.frozen", "[image]");
  EXPECT_NE(text_.find("--lock-image-unlocked-groups 1: only OpenCLIP's own towers have these groups"), std::string::npos) << text_;
}

TEST_F(FromOpenClip, PublishedWeightsAndTokenizersBecomeDownloadPaths) {
  const config::Node run = tree("model: ViT-B-16-SigLIP\npretrained: webli\nsiglip: True\nlocal_loss: True\n");
  expect(run, "start.weights", "downloads/ViT-B-16-SigLIP/open_clip_model.safetensors");
  expect(run, "model.preprocessing", "{image_size: 224, resize_mode: squash, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}");
  expect(run, "tokenizer", "{name: tokenizer_json, model: downloads/timm/ViT-B-16-SigLIP/tokenizer.json, context_length: 64, cleanup: canonicalize, pad_is_text: true, pad_id: 1}");
  expect(run, "objective", "{name: siglip, init_logit_bias: 0}");
  expect(tree("model: ViT-B-32\npretrained: logs/epoch_3.pt\n"), "start.weights", "logs/epoch_3.pt");
  expect(tree("model: ViT-B-32\npretrained: a.pt\nresume: logs/epoch_4.pt\n"), "start.weights", "logs/epoch_4.pt");
}

TEST_F(FromOpenClip, ErrorsNameTheFileAndTheParameter) {
  for (const auto& [text, line] : std::vector<std::pair<std::string, std::string>>{
           {"# nothing\n", ": # nothing: expected lines of name: value"},
           {"loss: 1\n", ": has no parameter of open_clip_train: expected its params.txt"},
           {"model: ViT-B-31\n", ": no architecture named ViT-B-31: did you mean ViT-B-32?"},
           {"model: swin_base_patch4_window7_224\n", "swin_base_patch4_window7_224: timm's swin_base_patch4_window7_224 is not read"},
           {"batch_size: 1.5\n", ": batch_size is 1.5: expected a whole number"},
           {"lr_scheduler: step\n", ": lr_scheduler is step: open_clip_train has cosine, const and const-cooldown"}}) {
    const std::string refusal = refusal_of(converting(text));
    EXPECT_NE(refusal.find("trainer: " + path("params.txt")), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(line), std::string::npos) << refusal;
  }
}

}  // namespace
}  // namespace tessera
