-- with _counter.lua
-- Delete a semaphore.  No waiter needs to be woken.
-- KEYS[1] semaphore
-- Reply: 1 deleted, 0 it did not exist.  A value that is not a number is left alone.
if not counter(redis.call('get', KEYS[1])) then
    return redis.error_reply('WRONGTYPE the string is not a semaphore')
end
return redis.call('del', KEYS[1])
