/* left.h - what is left of clients: their descriptors, which end when they are closed, and themselves, which end with
 * the last reference. */
#ifndef SNIB_UNIT_LEFT_H
#define SNIB_UNIT_LEFT_H

#include "descriptors.h"
#include "driver/driver.h"

int __real_snib__driver_init(struct snib__driver *driver);
int __wrap_snib__driver_init(struct snib__driver *driver);
void __real_snib__driver_destroy(struct snib__driver *driver);
void __wrap_snib__driver_destroy(struct snib__driver *driver);

static int clients_alive;

int __wrap_snib__driver_init(struct snib__driver *driver)
{
    int error = __real_snib__driver_init(driver);
    clients_alive += error == 0;
    return error;
}

void __wrap_snib__driver_destroy(struct snib__driver *driver)
{
    clients_alive--;
    __real_snib__driver_destroy(driver);
}

#endif
