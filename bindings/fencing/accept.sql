INSERT INTO snib_fence (name, token, owner) VALUES (:name, :token, :owner)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, owner = excluded.owner
WHERE snib_fence.token < excluded.token
   OR (snib_fence.token = excluded.token AND snib_fence.owner = excluded.owner)
