/* Runs the signatures of a SavedModel in a process without Python.

   TF_LoadSessionFromSavedModel is tensorflow::LoadSavedModel, the loader of the stock TensorFlow Serving; with
   --without-xla the process refuses XLA as the stock server does.

   usage: run_saved_model DIRECTORY [--without-xla] [--library FILE]... [--signature NAME]... [--repeat N] [--batch N]
                           [--intra-op N] < texts

   Texts are frames: a decimal length, a newline, that many bytes, a newline; any bytes will do. Every signature whose
   inputs are strings runs on them (or those named, in their order); inputs with a default are left to it. Text i goes
   to string input i mod k of k, in the order of their names; those after the last whole round are left out. To an input
   of numbers goes one text: "RANK DIMENSION...", a newline, and the array's bytes.
   stdout, for each signature:
       signature NAME
       output NAME TYPE RANK DIMENSION...     followed by one line for each number, one frame for each string
   stderr: seconds of the load and of each run, and the most memory that was resident, in MB (10^6 bytes). Status 0, or
   1 after one line on stderr. With --batch N the texts go N at a time, as requests one after the other, and each has its
   own "signature NAME". --intra-op is the stock server's --tensorflow_intra_op_parallelism: threads of one operation, at
   most 127. */

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

/* tensorflow::DisableXlaCompilation(), which has no C interface. */
extern void _ZN10tensorflow21DisableXlaCompilationEv(void);

enum { MOST = 32, NAME = 256 };

typedef struct {
  char key[NAME];    /* the caller's name for it */
  char tensor[NAME]; /* the graph's name: OPERATION:INDEX */
  TF_DataType type;
} Tensor;

typedef struct {
  char name[NAME];
  Tensor inputs[MOST], outputs[MOST], defaults[MOST]; /* of a default no more than its key is read */
  int input_count, output_count, default_count;
} Signature;

typedef struct {
  char *bytes;
  size_t length;
} Text;

static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "run_saved_model: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  exit(1);
}

static void check(const TF_Status *status, const char *what) {
  if (TF_GetCode(status) != TF_OK) fail("%s: [%d] %s", what, TF_GetCode(status), TF_Message(status));
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

/* --- Protocol buffers: as much of the wire format as signatures need. ------------------------------------------ */

typedef struct {
  const uint8_t *at, *end;
} Span;

typedef struct {
  int number;
  uint64_t value; /* of a varint */
  Span content;   /* of a message or a string */
} Field;

static uint64_t read_varint(Span *span) {
  uint64_t value = 0;
  for (int shift = 0; span->at < span->end && shift < 64; shift += 7) {
    uint8_t byte = *span->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("the signatures are no valid protocol buffer");
  return 0;
}

static int next_field(Span *message, Field *field) {
  if (message->at >= message->end) return 0;
  uint64_t tag = read_varint(message), size = 0;
  field->number = (int)(tag >> 3);
  field->content = (Span){message->at, message->at};
  switch (tag & 7) {
    case 0: field->value = read_varint(message); return 1;
    case 1: size = 8; break;
    case 2: size = read_varint(message); break;
    case 5: size = 4; break;
    default: fail("the signatures are no valid protocol buffer");
  }
  if (size > (uint64_t)(message->end - message->at)) fail("the signatures are truncated");
  field->content = (Span){message->at, message->at + size};
  message->at += size;
  return 1;
}

static void copy_name(char *name, Span span) {
  size_t length = span.end - span.at;
  if (length >= NAME) fail("a name of %zu bytes is too long", length);
  memcpy(name, span.at, length);
  name[length] = 0;
}

/* An entry of map<string, TensorInfo>; TensorInfo {name = 1, dtype = 2}. */
static void read_tensor(Span entry, Tensor *tensors, int *count) {
  if (*count == MOST) fail("a signature has more than %d tensors on a side", MOST);
  Tensor *tensor = &tensors[(*count)++];
  for (Field pair; next_field(&entry, &pair);) {
    if (pair.number == 1) copy_name(tensor->key, pair.content);
    if (pair.number != 2) continue;
    for (Field info; next_field(&pair.content, &info);) {
      if (info.number == 1) copy_name(tensor->tensor, info.content);
      if (info.number == 2) tensor->type = (TF_DataType)info.value;
    }
  }
}

/* An entry of map<string, TensorProto>, of which the key is enough. */
static void read_key(Span entry, Tensor *tensors, int *count) {
  if (*count == MOST) fail("a signature has more than %d defaults", MOST);
  for (Field pair; next_field(&entry, &pair);) {
    if (pair.number == 1) copy_name(tensors[*count].key, pair.content);
  }
  ++*count;
}

static int by_key(const void *a, const void *b) { return strcmp(((const Tensor *)a)->key, ((const Tensor *)b)->key); }

/* Takes the inputs with a default away: the graph has it, too. */
static void leave_defaults(Signature *signature) {
  int kept = 0;
  for (int i = 0; i < signature->input_count; ++i) {
    int has_default = 0;
    for (int d = 0; d < signature->default_count; ++d) {
      has_default |= !strcmp(signature->inputs[i].key, signature->defaults[d].key);
    }
    if (!has_default) signature->inputs[kept++] = signature->inputs[i];
  }
  signature->input_count = kept;
}

/* MetaGraphDef {signature_def = 5: map<string, SignatureDef>}; SignatureDef {inputs = 1, outputs = 2, defaults = 4}. */
static int read_signatures(Span graph, Signature *signatures) {
  int count = 0;
  for (Field field; next_field(&graph, &field);) {
    if (field.number != 5) continue;
    if (count == MOST) fail("there are more than %d signatures", MOST);
    Signature *signature = &signatures[count++];
    for (Field pair; next_field(&field.content, &pair);) {
      if (pair.number == 1) copy_name(signature->name, pair.content);
      if (pair.number != 2) continue;
      for (Field side; next_field(&pair.content, &side);) {
        if (side.number == 1) read_tensor(side.content, signature->inputs, &signature->input_count);
        if (side.number == 2) read_tensor(side.content, signature->outputs, &signature->output_count);
        if (side.number == 4) read_key(side.content, signature->defaults, &signature->default_count);
      }
    }
    leave_defaults(signature);
    qsort(signature->inputs, signature->input_count, sizeof(Tensor), by_key);
    qsort(signature->outputs, signature->output_count, sizeof(Tensor), by_key);
  }
  return count;
}

/* --- Texts in, tensors through, results out. ------------------------------------------------------------------- */

static Text *read_texts(int64_t *count) {
  Text *texts = NULL;
  size_t length;
  for (*count = 0; scanf("%zu", &length) == 1; ++*count) {
    if (getchar() != '\n') fail("text %lld has no newline after its length", (long long)*count);
    texts = realloc(texts, (*count + 1) * sizeof *texts);
    char *bytes = malloc(length + 1);
    if (!texts || !bytes) fail("out of memory");
    if (fread(bytes, 1, length, stdin) != length || getchar() != '\n') fail("text %lld is truncated", (long long)*count);
    texts[*count] = (Text){bytes, length};
  }
  if (!feof(stdin)) fail("expected the length of text %lld", (long long)*count);
  return texts;
}

/* Texts first, first + step, ... as a vector of strings. */
static TF_Tensor *string_tensor(const Text *texts, int64_t count, int64_t first, int64_t step) {
  int64_t rows = count / step;
  TF_Tensor *tensor = TF_AllocateTensor(TF_STRING, &rows, 1, rows * sizeof(TF_TString));
  TF_TString *strings = TF_TensorData(tensor);
  for (int64_t row = 0; row < rows; ++row) {
    const Text *text = &texts[first + row * step];
    TF_StringInit(&strings[row]);
    TF_StringCopy(&strings[row], text->bytes, text->length);
  }
  return tensor;
}

static TF_Tensor *number_tensor(const Text *text, TF_DataType type) {
  int64_t dimensions[8], elements = 1;
  char *at = text->bytes, *end = memchr(text->bytes, '\n', text->length);
  if (!end) fail("an array has no line with its shape");
  int rank = (int)strtol(at, &at, 10);
  if (rank < 0 || rank > 8) fail("an array of rank %d", rank);
  for (int i = 0; i < rank; ++i) elements *= dimensions[i] = strtoll(at, &at, 10);
  size_t size = elements * TF_DataTypeSize(type);
  if (at != end || size != text->length - (end + 1 - text->bytes)) fail("an array of another size than its shape");
  TF_Tensor *tensor = TF_AllocateTensor(type, dimensions, rank, size);
  memcpy(TF_TensorData(tensor), end + 1, size);
  return tensor;
}

static TF_Output find_output(TF_Graph *graph, const char *tensor) {
  char name[NAME];
  strcpy(name, tensor);
  char *colon = strrchr(name, ':');
  TF_Output output = {NULL, colon ? atoi(colon + 1) : 0};
  if (colon) *colon = 0;
  output.oper = TF_GraphOperationByName(graph, name);
  if (!output.oper) fail("the graph has no operation %s", name);
  return output;
}

static void print_tensor(const Tensor *info, const TF_Tensor *tensor) {
  int64_t count = TF_TensorElementCount(tensor);
  const void *data = TF_TensorData(tensor);
  printf("output %s %d %d", info->key, TF_TensorType(tensor), TF_NumDims(tensor));
  for (int i = 0; i < TF_NumDims(tensor); ++i) printf(" %lld", (long long)TF_Dim(tensor, i));
  printf("\n");
  for (int64_t i = 0; i < count; ++i) {
    switch (TF_TensorType(tensor)) {
      case TF_FLOAT: printf("%.9g\n", ((const float *)data)[i]); break;
      case TF_INT32: printf("%d\n", ((const int32_t *)data)[i]); break;
      case TF_INT64: printf("%lld\n", (long long)((const int64_t *)data)[i]); break;
      case TF_STRING: {
        const TF_TString *string = &((const TF_TString *)data)[i];
        size_t length = TF_StringGetSize(string);
        printf("%zu\n", length);
        fwrite(TF_StringGetDataPointer(string), 1, length, stdout);
        printf("\n");
        break;
      }
      default: fail("output %s has type %d, which is not printed", info->key, TF_TensorType(tensor));
    }
  }
}

static void run(TF_Session *session, TF_Graph *graph, const Signature *signature, const Text *texts, int64_t count,
                int repeat) {
  TF_Output inputs[MOST], outputs[MOST];
  TF_Tensor *fed[MOST], *found[MOST];
  TF_Status *status = TF_NewStatus();
  for (int i = 0; i < signature->input_count; ++i) {
    const Tensor *input = &signature->inputs[i];
    if (i >= count && input->type != TF_STRING) fail("%s: no array for input %s", signature->name, input->key);
    inputs[i] = find_output(graph, input->tensor);
    fed[i] = input->type == TF_STRING ? string_tensor(texts, count, i, signature->input_count)
                                      : number_tensor(&texts[i], input->type);
  }
  for (int i = 0; i < signature->output_count; ++i) outputs[i] = find_output(graph, signature->outputs[i].tensor);
  for (int turn = 0; turn < repeat; ++turn) {
    double begin = seconds();
    TF_SessionRun(session, NULL, inputs, fed, signature->input_count, outputs, found, signature->output_count, NULL, 0,
                  NULL, status);
    check(status, signature->name);
    fprintf(stderr, "run %s %.6f\n", signature->name, seconds() - begin);
    for (int i = 0; i < signature->output_count && turn + 1 < repeat; ++i) TF_DeleteTensor(found[i]);
  }
  printf("signature %s\n", signature->name);
  for (int i = 0; i < signature->output_count; ++i) {
    print_tensor(&signature->outputs[i], found[i]);
    TF_DeleteTensor(found[i]);
  }
  for (int i = 0; i < signature->input_count; ++i) TF_DeleteTensor(fed[i]);
  TF_DeleteStatus(status);
}

static void run_all(TF_Session *session, TF_Graph *graph, const Signature *signature, const Text *texts, int64_t count,
                    int repeat, int64_t batch) {
  int64_t start = 0;
  do {
    int64_t size = batch && batch < count - start ? batch : count - start;
    run(session, graph, signature, texts + start, size, repeat);
    start += size;
  } while (start < count);
}

static int takes_strings(const Signature *signature) {
  for (int i = 0; i < signature->input_count; ++i) {
    if (signature->inputs[i].type != TF_STRING) return 0;
  }
  return 1;
}

/* The most memory of this program that was resident. `ru_maxrss` has that of the process which started it, too. */
static long peak_kilobytes(void) {
  char line[NAME];
  long peak = 0;
  FILE *status = fopen("/proc/self/status", "r");
  if (!status) fail("there is no /proc/self/status to read the memory from");
  while (fgets(line, sizeof line, status) && sscanf(line, "VmHWM: %ld", &peak) != 1) continue;
  fclose(status);
  if (!peak) fail("there is no VmHWM in /proc/self/status");
  return peak;
}

int main(int argc, char **argv) {
  static Signature signatures[MOST];
  const char *chosen[MOST], *tags[] = {"serve"};
  int chosen_count = 0, repeat = 1, batch = 0, intra_op = 0;
  TF_Status *status = TF_NewStatus();
  if (argc < 2) fail("expected a SavedModel's folder; see the head of run_saved_model.c");
  for (int i = 2; i < argc; ++i) {
    int has_value = i + 1 < argc;
    if (!strcmp(argv[i], "--without-xla")) {
      _ZN10tensorflow21DisableXlaCompilationEv();
    } else if (!strcmp(argv[i], "--library") && has_value) {
      TF_LoadLibrary(argv[++i], status);
      check(status, argv[i]);
    } else if (!strcmp(argv[i], "--signature") && has_value && chosen_count < MOST) {
      chosen[chosen_count++] = argv[++i];
    } else if (!strcmp(argv[i], "--repeat") && has_value && atoi(argv[i + 1]) > 0) {
      repeat = atoi(argv[++i]);
    } else if (!strcmp(argv[i], "--batch") && has_value && atoi(argv[i + 1]) > 0) {
      batch = atoi(argv[++i]);
    } else if (!strcmp(argv[i], "--intra-op") && has_value && atoi(argv[i + 1]) > 0 && atoi(argv[i + 1]) < 128) {
      intra_op = atoi(argv[++i]);
    } else {
      fail("unknown or incomplete option %s", argv[i]);
    }
  }
  int64_t text_count;
  Text *texts = read_texts(&text_count);

  TF_SessionOptions *options = TF_NewSessionOptions();
  uint8_t config[] = {2 << 3, (uint8_t)intra_op}; /* ConfigProto.intra_op_parallelism_threads, a varint */
  if (intra_op) TF_SetConfig(options, config, sizeof config, status);
  check(status, "--intra-op");
  TF_Graph *graph = TF_NewGraph();
  TF_Buffer *meta_graph = TF_NewBuffer();
  double begin = seconds();
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, meta_graph, status);
  check(status, argv[1]);
  fprintf(stderr, "load %.6f\n", seconds() - begin);

  const uint8_t *proto = meta_graph->data;
  int count = read_signatures((Span){proto, proto + meta_graph->length}, signatures);
  for (int i = 0; i < count && !chosen_count; ++i) {
    if (!strncmp(signatures[i].name, "__", 2) || !takes_strings(&signatures[i])) continue;
    run_all(session, graph, &signatures[i], texts, text_count, repeat, batch);
  }
  for (int c = 0; c < chosen_count; ++c) {
    int i = 0;
    while (i < count && strcmp(signatures[i].name, chosen[c])) ++i;
    if (i == count) fail("there is no signature %s", chosen[c]);
    run_all(session, graph, &signatures[i], texts, text_count, repeat, batch);
  }

  fprintf(stderr, "memory %ld\n", peak_kilobytes() * 1024 / 1000000);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  for (int64_t i = 0; i < text_count; ++i) free(texts[i].bytes);
  free(texts);
  return 0;
}
