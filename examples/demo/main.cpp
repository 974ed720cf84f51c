// The demo: an application linked to cistern. It trains a character-level transformer whose
// every tensor comes from cistern::allocate, on the simulated device, and then shows what an
// application sees of its memory: the summary, a snapshot, an out-of-memory error that it
// survives, and a trace of its own allocations.

#include "command_line.h"
#include "progress.h"
#include "sampling.h"
#include "text.h"
#include "trainer.h"

#include <cistern/cistern.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>

namespace cistern::demo {
namespace {

constexpr const char* kTraceHeader =
    "source: cistern's demo, recorded by the program itself (examples/demo)\n"
    "licence: Apache-2.0\n"
    "application: training and sampling a character-level transformer; stream 1 computes, stream 2 copies batches";

constexpr const char* kSnapshotName = "demo-snapshot.json";
constexpr const char* kTraceName = "demo.trace";

std::string output_file(const CommandLine& line, const char* name) {
  return (line.output / name).lexically_normal().string();
}

constexpr double kMiB = 1024.0 * 1024.0;

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / kMiB; }

void print_loss(const char* name, double nats) {
  std::printf("  %-24s %6.3f nats  %6.3f bits a character\n", name, nats, nats / std::numbers::ln2);
}

void train(Trainer& trainer, std::size_t steps) {
  Progress progress(steps);
  for (std::size_t done = 1; done <= steps; ++done) progress.show(done, trainer.step());
}

// Whether the model beats counting characters on text it has not seen.
bool report_losses(const Trainer& trainer, const std::vector<Token>& training, const std::vector<Token>& held_out) {
  const std::size_t vocabulary = trainer.model().shape().vocabulary;
  const double unigram = unigram_loss(training, held_out, vocabulary);
  const double model = trainer.mean_loss(held_out);
  std::printf("\nLoss on the held-out text (%zu characters):\n", held_out.size());
  print_loss("unigram counts", unigram);
  print_loss("bigram counts", bigram_loss(training, held_out, vocabulary));
  print_loss("this transformer", model);
  if (!(model < unigram)) std::printf("The transformer did not learn: its loss is not below the unigram model's.\n");
  return model < unigram;
}

// The first 30 characters of a line from the middle on that has as many, or else what is there.
std::string piece_of(const std::string& text) {
  constexpr std::size_t kLength = 30;
  for (std::size_t start = text.size() / 2, end = 0; start < text.size(); start = end + 1) {
    start = text.find_first_not_of(" \n", start);
    if (start == std::string::npos) break;
    end = std::min(text.find('\n', start), text.size());
    if (end - start >= kLength) return text.substr(start, kLength);
  }
  return text.substr(text.size() / 2, kLength);
}

void show_sample(const Context& context, const Trainer& trainer, const Vocabulary& vocabulary, const Corpus& corpus,
                 std::uint64_t seed) {
  const std::string prompt = piece_of(corpus.held_out);
  SamplingOptions options;
  options.seed = seed;
  const std::string text = write_text(context, trainer.model(), vocabulary, prompt, options);
  std::printf("\nThe model continues a piece of the held-out text, \"%s\":\n---\n%s\n---\n", prompt.c_str(),
              text.c_str());
}

// The largest part of the device that the exhibition of an out-of-memory error may fill: the
// bytes of the simulated device are real ones.
constexpr std::size_t kExhibitedBytes = std::size_t{1} << 30;

void show_out_of_memory(Trainer& trainer) {
  const std::size_t total = memory_info().total;
  const std::size_t usable = std::min(total, kExhibitedBytes);
  const double fraction = memory_fraction();
  if (total > usable) {
    std::printf("\n(The next step may use %.0f MiB of the device's %.0f.)", mebibytes(usable), mebibytes(total));
    set_memory_fraction(static_cast<double>(usable) / static_cast<double>(total));
  }
  // The first layer's queries, keys and values alone take three quarters of what there is.
  const ModelShape& shape = trainer.model().shape();
  const std::size_t sequences = usable / 4 * 3 / (shape.context * 3 * shape.width * sizeof(float));
  std::printf(
      "\nA step on a batch of %zu sequences is more than the device holds. What the application sees\n"
      "(the summary below goes to standard error: the option oom_dump says where):\n",
      sequences);
  std::fflush(stdout);
  try {
    trainer.step(sequences);
    throw std::runtime_error("a batch of " + std::to_string(sequences) + " sequences fitted, which it should not");
  } catch (const OutOfMemoryError& error) {
    std::fflush(stderr);
    const OutOfMemoryReport& report = error.report();
    std::printf("\ncaught cistern::OutOfMemoryError, cause: %s\n  %s\n", to_string(report.cause), error.what());
    std::printf(
        "  in its report: %.1f MiB requested, %.1f MiB of %.1f MiB free on the device, %.1f MiB allocated here\n",
        mebibytes(report.requested_bytes), mebibytes(report.device_free_bytes), mebibytes(report.device_total_bytes),
        mebibytes(report.allocated_bytes));
  }
  set_memory_fraction(fraction);
  std::printf("and the run goes on: the next step has a loss of %.3f nats.\n", trainer.step());
}

// Everything that holds device memory lives in here. Returns whether the model learnt.
bool train_and_show(const CommandLine& line, const Corpus& corpus, AllocationTrace& trace) {
  const Vocabulary vocabulary(corpus);
  const std::vector<Token> training = vocabulary.encode(corpus.training);
  const std::vector<Token> held_out = vocabulary.encode(corpus.held_out);

  const Context context(&trace);
  ModelShape shape;
  shape.vocabulary = vocabulary.size();
  TrainingOptions options;
  options.steps = line.steps;
  options.seed = line.seed;
  Trainer trainer(context, training, shape, options);
  std::printf("Text: %zu characters, %zu different, from %s.\n", training.size(), vocabulary.size(),
              corpus.description.c_str());
  std::printf("Model: %zu layers of attention with %zu heads, %zu parameters; %zu steps of %zu x %zu characters.\n",
              shape.layers, shape.heads, trainer.parameter_count(), options.steps, options.sequences, shape.context);

  train(trainer, options.steps);
  const bool learnt = report_losses(trainer, training, held_out);
  show_sample(context, trainer, vocabulary, corpus, line.seed);

  std::printf("\nIn virtual time the device worked for %.1f ms. Its memory, by memory_summary():\n%s",
              std::chrono::duration<double, std::milli>(simulated::driver().virtual_time()).count(),
              memory_summary().c_str());
  const std::string snapshot = output_file(line, kSnapshotName);
  write_json(memory_snapshot(), snapshot);
  std::printf("\nEvery segment and block of this moment is in %s.\n", snapshot.c_str());
  show_out_of_memory(trainer);
  return learnt;
}

void print_next_steps(const CommandLine& line) {
  std::printf(
      "\nWhat next:\n"
      "  link it:        add_subdirectory(cistern) and target_link_libraries(your_target cistern::cistern)\n"
      "  look at it:     ./dev cistern summary %s\n"
      "  replay a trace: ./dev cistern replay %s\n",
      output_file(line, kSnapshotName).c_str(), output_file(line, kTraceName).c_str());
}

int run(const CommandLine& line) {
  const Corpus corpus = line.text ? read_file(*line.text) : read_licences();
  initialize();
  if (!simulated::is_active()) {
    std::fprintf(stderr,
                 "cistern_demo: its kernels are host code, so it trains on the simulated device only: "
                 "unset CISTERN_DEVICE, or set it to simulated\n");
    return 2;
  }
  std::printf("cistern demo: training a transformer on %s (%.0f MiB), every tensor from cistern::allocate.\n",
              device_properties().name.c_str(), mebibytes(memory_info().total));

  const std::string trace_path = output_file(line, kTraceName);
  std::ofstream trace_file(trace_path);
  if (!trace_file) throw std::runtime_error("the trace " + trace_path + " cannot be written");
  AllocationTrace trace(trace_file, kTraceHeader);
  const bool learnt = train_and_show(line, corpus, trace);

  trace_file.close();
  if (!trace_file) throw std::runtime_error("the trace " + trace_path + " cannot be written");
  const std::size_t left = memory_allocated();
  std::printf("\nThe model is gone, and %zu bytes are allocated. The allocations are in %s.\n", left,
              trace_path.c_str());
  if (left != 0) std::fprintf(stderr, "cistern_demo: memory was leaked\n");
  print_next_steps(line);
  return learnt && left == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cistern::demo

int main(int count, char** arguments) {
  using namespace cistern::demo;
  // An application's default; whoever sets the variable decides.
  setenv("CISTERN_DEVICE", "simulated:capacity=512MiB", 0);
  CommandLine line;
  try {
    line = parse_command_line({arguments + 1, arguments + count});
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "cistern_demo: %s\n%s", error.what(), usage().c_str());
    return 2;
  }
  if (line.help) {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  try {
    return run(line);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cistern_demo: %s\n", error.what());
    return 1;
  }
}
