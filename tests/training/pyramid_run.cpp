#include "tests/training/pyramid_run.h"

#include <filesystem>

#include <ATen/ATen.h>

#include "src/data/packing/pack_sample.h"
#include "src/data/shapes/shapes.h"
#include "src/io/tar.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

ShapesSource pyramid_shapes() {
  ShapesSettings shapes;
  shapes.size = 48;
  shapes.image_size = 16;
  shapes.regions = true;
  return ShapesSource(shapes);
}

using Members = std::vector<SampleFile>;

bool is_json(const SampleFile& member) {
  return member.name == "json";  // this member repeats the captions and texts
}

// Writes the sample's members, except .json, after `change` has edited them.
void write_sample(io::TarWriter& tar, const std::string& key, Sample sample,
                  const std::function<void(Members&)>& change = {}) {
  Members members = sample_files(sample, {}, "png");
  std::erase_if(members, is_json);
  if (change) change(members);
  for (const SampleFile& member : members) tar.add(key + "." + member.name, member.content);
}

void drop(Members& members, const std::string& name) {
  std::erase_if(members, [&](const SampleFile& member) { return member.name == name; });
}

// Returns the bytes of a .safetensors file with region features of the wrong width 100.
std::string narrow_tensor(const std::string& scratch) {
  io::save_safetensors(scratch, {{"features", at::ones({2, 100})}});
  std::string bytes = io::read_file(scratch);
  std::filesystem::remove(scratch);
  return bytes;
}

}  // namespace

std::string write_pyramid_shards(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const ShapesSource shapes = pyramid_shapes();
  io::TarWriter tar(folder + "/pyramid.tar");
  for (std::int64_t i = 0; i < shapes.size(); ++i) {
    Sample sample = shapes.get(i);
    if (i % 2 == 1) sample.regions.clear();
    if (i % 4 == 1) sample.summary.clear();
    if (i % 4 == 3) sample.object_tags.clear();
    write_sample(tar, std::to_string(i), std::move(sample));
  }
  tar.finish();
  return folder + "/*.tar";
}

std::string write_pyramid_shards_with_damage(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const ShapesSource shapes = pyramid_shapes();
  io::TarWriter tar(folder + "/pyramid.tar");
  write_sample(tar, "bad_0", shapes.get(27), [](Members& members) {
    for (SampleFile& member : members)
      if (member.name == "regions.npy") member.content.resize(member.content.size() / 2);
  });
  Sample narrow = shapes.get(28);
  narrow.regions.assign(200, 1.0F);
  narrow.region_width = 100;
  write_sample(tar, "bad_1", narrow);
  write_sample(tar, "bad_2", shapes.get(29), [&](Members& members) {
    drop(members, "regions.npy");
    members.push_back({"regions.safetensors", narrow_tensor(folder + "/scratch")});
  });
  write_sample(tar, "bad_3", shapes.get(30), [](Members& members) { drop(members, "png"); });
  write_sample(tar, "bad_4", shapes.get(31), [](Members& members) { drop(members, "txt"); });
  for (std::int64_t i = 0; i < 27; ++i) {
    Sample sample = shapes.get(i);
    if (i % 2 == 0) sample.summary.clear();
    if (i % 3 == 0) sample.regions.clear();
    if (i % 5 == 0) sample.object_tags.clear();
    write_sample(tar, "good_" + std::to_string(i), std::move(sample));
  }
  tar.finish();
  return folder + "/*.tar";
}

Config pyramid_config(const std::string& run, const std::string& shards, const std::vector<std::string>& overrides) {
  const std::vector<std::string> all = {"data.train={name: webdataset, path: '" + shards + "'}",
                                        "data.loader.shuffle=false",
                                        "data.loader.augmentation={}",
                                        "data.loader.views={global: {scale: [0.9, 1.0]}, local: {scale: [0.5, 1.0]}}",
                                        "model.image.encoder.layers=2",
                                        "model.image.encoder.leff={layers: 1}",
                                        "model.image.encoder.regions={first_block: 1}",
                                        "training.steps=6"};
  return tiny_config(run, with(all, overrides), "pyramidclip");
}

}  // namespace tessera
