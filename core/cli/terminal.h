/* terminal.h - a screen of text lines on the user's terminal, for snib top.
 *
 * While it is open, the terminal shows the alternate screen, without a cursor, and reports keys without waiting for
 * the end of a line.  Ctrl-C and Ctrl-Z send signals as usual. */
#ifndef SNIB_TERMINAL_H
#define SNIB_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* terminal_usable - whether standard output is a terminal that can show a screen. */
bool terminal_usable(void);

/* terminal_open - show the screen, also again after the process was stopped.  A process in the background first waits
 * until it is in the foreground. */
void terminal_open(void);

/* terminal_close - show again what was there before.  Done at exit(), too; nothing if it is not open.  A signal's handler
 * may call it. */
void terminal_close(void);

/* terminal_size - the present number of columns and rows, at least 1. */
void terminal_size(int *out_columns, int *out_rows);

/* terminal_fd - readable when a key was pressed; -1: there are no keys. */
int terminal_fd(void);

/* terminal_key - a key that was pressed: its byte, 0 none, -1 the terminal is gone. */
int terminal_key(void);

/* terminal_show - show as many of these lines, each ended by a newline and cut already.  One that begins with \r is
 * shown in reverse. */
void terminal_show(const char *lines, int rows);

/* terminal_put - write text in at most this many columns, with an ellipsis if it is cut, and question marks for what
 * would move the cursor or change the direction of writing; is_padded: with blanks up to that column. */
void terminal_put(FILE *out, const char *text, int columns, bool is_padded);

#endif
