/* A program with a bug, which AddressSanitizer must see although the library is built without it: the buffer
 * is shorter than the program says. */
#include "kvstrata.h"

#include <stdlib.h>

int main(void) {
    char *buffer = malloc(4);
    (void)kvs_close(NULL, 0); /* leaves a message of more than 4 bytes */
    (void)kvs_last_error(buffer, 1000);
    free(buffer);
    return 0;
}
