// Mask R-CNN with ResNet-50 and a feature pyramid, training on images of varied size.
//
// Shapes: He et al., "Deep Residual Learning" (2016, ResNet-50); Lin et al., "Feature Pyramid
// Networks" (2017, 256 channels on 5 levels, 3 anchors a place); He et al., "Mask R-CNN" (2017,
// 512 sampled regions an image, 7x7 and 14x14 pooling, 80 classes). As is usual, norms are
// frozen, and so are the first stages; 2000 proposals an image before suppression. Float32.
// Ours: 4 images a batch, shorter side 640 to 800 in steps of 32, longer at most 1333, sides as
// 1:1 to 16:9, either way up, 1 to 40 objects an image; the batch is padded to its largest
// image in multiples of 32; 3x3 convolutions take a workspace as large as their input.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/workloads/generators.h"
#include "bench/workloads/random.h"
#include "bench/workloads/tensor.h"

namespace cistern {
namespace {

constexpr std::uint64_t kImages = 4, kFp32 = 4, kInt64 = 8;
constexpr std::uint64_t kPyramid = 256, kAnchors = 3, kClasses = 80;
constexpr std::uint64_t kRegions = 512, kProposals = 2000;
constexpr int kSteps = 110;

// Blocks, and the channels between and after them, of ResNet-50's four stages.
struct Stage {
  std::uint64_t blocks, middle, out;
};
constexpr std::array<Stage, 4> kStages = {{{3, 64, 256}, {4, 128, 512}, {6, 256, 1024}, {3, 512, 2048}}};
constexpr std::size_t kFrozenStages = 1;

struct Extent {
  std::uint64_t height = 0, width = 0;
  [[nodiscard]] std::uint64_t area() const { return height * width; }
  [[nodiscard]] Extent half() const { return {(height + 1) / 2, (width + 1) / 2}; }
};

// A convolution's or a layer's part in the backward pass: what it saved, and its sizes.
struct SavedLayer {
  Tensor output;
  std::uint64_t input_bytes = 0, weight_bytes = 0, workspace_bytes = 0;
};

class MaskRcnn {
 public:
  MaskRcnn(std::uint64_t seed, TraceSink& sink) : random_(seed), sink_(sink) {}

  void train_step() {
    choose_images();
    Tensor images(sink_, kImages * 3 * image_.area() * kFp32);
    backbone();
    pyramid();
    proposals();
    box_head();
    mask_head();
    backward();
    apply_gradients();
    sink_.step();
  }

 private:
  Tensor fp32(std::uint64_t count) { return {sink_, count * kFp32}; }

  void choose_images() {
    image_ = {};
    objects_.clear();
    for (std::uint64_t i = 0; i < kImages; ++i) {
      std::uint64_t shorter = 640 + 32 * random_.below(6);
      std::uint64_t longer = shorter * random_.between(1000, 1778) / 1000;
      if (longer > 1333) {
        shorter = shorter * 1333 / longer;
        longer = 1333;
      }
      const bool upright = random_.chance(25);
      image_.height = std::max(image_.height, round_up(upright ? longer : shorter, 32));
      image_.width = std::max(image_.width, round_up(upright ? shorter : longer, 32));
      objects_.push_back(random_.between(1, 40));
    }
  }

  // A convolution with its frozen norm and activation: the norm's output is what stays.
  void convolve(std::uint64_t images, Extent in, Extent out, std::uint64_t from, std::uint64_t to, std::uint64_t side,
                bool trained = true) {
    SavedLayer layer{Tensor(), images * from * in.area() * kFp32, from * to * side * side * kFp32,
                     side > 1 ? images * from * in.area() * kFp32 : 0};
    const Tensor raw = fp32(images * to * out.area());
    if (layer.workspace_bytes > 0) const Tensor workspace(sink_, layer.workspace_bytes);
    layer.output = fp32(images * to * out.area());
    if (first_step_) weights_.emplace_back(sink_, layer.weight_bytes);
    if (trained) {
      saved_.push_back(std::move(layer));
    } else {
      frozen_ = std::move(layer.output);  // only until the next one is made
    }
  }

  void backbone() {
    Extent extent = image_.half();
    convolve(kImages, image_, extent, 3, 64, 7, false);
    extent = extent.half();
    frozen_ = fp32(kImages * 64 * extent.area());  // pooled
    std::uint64_t channels = 64;
    for (std::size_t s = 0; s < kStages.size(); ++s) {
      const Stage& stage = kStages[s];
      const bool trained = s >= kFrozenStages;
      for (std::uint64_t block = 0; block < stage.blocks; ++block) {
        const Extent out = block == 0 && s > 0 ? extent.half() : extent;
        convolve(kImages, extent, out, channels, stage.middle, 1, trained);
        convolve(kImages, out, out, stage.middle, stage.middle, 3, trained);
        convolve(kImages, out, out, stage.middle, stage.out, 1, trained);
        if (block == 0) convolve(kImages, extent, out, channels, stage.out, 1, trained);
        channels = stage.out;
        extent = out;
      }
      stages_[s] = extent;
    }
  }

  void pyramid() {
    for (std::size_t s = kStages.size(); s-- > 0;) {
      convolve(kImages, stages_[s], stages_[s], kStages[s].out, kPyramid, 1);
      const Tensor upsampled = fp32(kImages * kPyramid * stages_[s].area());
      convolve(kImages, stages_[s], stages_[s], kPyramid, kPyramid, 3);
    }
    levels_ = {stages_[0], stages_[1], stages_[2], stages_[3], stages_[3].half()};
    coarsest_ = fp32(kImages * kPyramid * levels_.back().area());
  }

  void proposals() {
    std::uint64_t anchors = 0;
    for (const Extent& level : levels_) {
      convolve(kImages, level, level, kPyramid, kPyramid, 3);
      convolve(kImages, level, level, kPyramid, kAnchors, 1);
      convolve(kImages, level, level, kPyramid, 4 * kAnchors, 1);
      anchors += kAnchors * level.area();
    }
    const Tensor boxes = fp32(4 * anchors), decoded = fp32(kImages * 4 * anchors);
    for (const std::uint64_t objects : objects_) {
      match(objects, anchors);
      const Tensor scores = fp32(anchors), order(sink_, anchors * kInt64), best = fp32(4 * kProposals);
      const Tensor overlaps(sink_, kProposals * round_up(kProposals, 64) / 8);
      const Tensor kept(sink_, random_.between(kProposals / 4, kProposals) * kInt64);
    }
  }

  // Overlap of each object with each box, and for each box its best object.
  void match(std::uint64_t objects, std::uint64_t boxes) {
    Tensor intersections = fp32(objects * boxes);
    const Tensor overlaps = fp32(objects * boxes);
    intersections.reset();
    const Tensor best = fp32(boxes), which(sink_, boxes * kInt64), labels(sink_, boxes);
  }

  void connect(std::uint64_t rows, std::uint64_t from, std::uint64_t to) {
    saved_.push_back({fp32(rows * to), rows * from * kFp32, from * to * kFp32, 0});
    if (first_step_) weights_.emplace_back(sink_, from * to * kFp32);
  }

  void pool(std::uint64_t regions, std::uint64_t side) {
    const Tensor boxes = fp32(5 * regions), level(sink_, regions * kInt64);
    saved_.push_back({fp32(regions * kPyramid * side * side), kImages * kPyramid * levels_[0].area() * kFp32, 0, 0});
  }

  void box_head() {
    for (const std::uint64_t objects : objects_) match(objects, kProposals + objects);
    const std::uint64_t regions = kImages * kRegions;
    pool(regions, 7);
    connect(regions, kPyramid * 7 * 7, 1024);
    connect(regions, 1024, 1024);
    connect(regions, 1024, kClasses + 1);
    connect(regions, 1024, 4 * kClasses);
    const Tensor probabilities = fp32(regions * (kClasses + 1)), loss = fp32(1);
  }

  void mask_head() {
    std::uint64_t regions = 0;
    for (const std::uint64_t objects : objects_) regions += std::min(kRegions / 4, objects * random_.between(1, 12));
    const Extent small{14, 14}, large{28, 28};
    pool(regions, 14);
    for (int i = 0; i < 4; ++i) convolve(regions, small, small, kPyramid, kPyramid, 3);
    convolve(regions, small, large, kPyramid, kPyramid, 2);
    convolve(regions, large, large, kPyramid, kClasses, 1);
    const Tensor targets = fp32(regions * large.area()), loss = fp32(1);
  }

  void backward() {
    Tensor gradient;
    while (!saved_.empty()) {
      SavedLayer layer = std::move(saved_.back());
      saved_.pop_back();
      gradient = Tensor(sink_, layer.output.bytes());  // through the activation and the norm
      layer.output.reset();
      Tensor input_gradient(sink_, layer.input_bytes);
      if (layer.weight_bytes > 0) {
        if (layer.workspace_bytes > 0) const Tensor workspace(sink_, layer.workspace_bytes);
        gradients_.emplace_back(sink_, layer.weight_bytes);
      }
      gradient = std::move(input_gradient);
    }
    coarsest_.reset();
    frozen_.reset();
  }

  void apply_gradients() {
    if (first_step_) {
      for (const Tensor& gradient : gradients_) momenta_.emplace_back(sink_, gradient.bytes());
    }
    first_step_ = false;
    gradients_.clear();
  }

  Random random_;
  TraceSink& sink_;
  bool first_step_ = true;
  Extent image_;
  std::vector<std::uint64_t> objects_;  // of each image
  std::array<Extent, 4> stages_{};
  std::array<Extent, 5> levels_{};
  std::vector<SavedLayer> saved_;
  std::vector<Tensor> weights_, gradients_, momenta_;
  Tensor frozen_, coarsest_;
};

}  // namespace

void generate_detection_training(std::uint64_t seed, TraceSink& sink) {
  sink.comment("cistern workload detection-train, seed " + std::to_string(seed) + ": generated, Apache-2.0");
  sink.comment(
      "Mask R-CNN (He et al., 2017) with ResNet-50 (He et al., 2016) and a pyramid (Lin et al., 2017), float32");
  sink.comment(
      "4 images a batch, shorter side 640 to 800, longer at most 1333, padded to the largest; 1 to 40 objects");
  MaskRcnn model(seed, sink);
  for (int step = 0; step < kSteps; ++step) model.train_step();
}

}  // namespace cistern
